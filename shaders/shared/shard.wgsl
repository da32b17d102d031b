const PACK: u32 = 1u;   // FP32 rows to records
const UNPACK: u32 = 2u; // records to FP32 rows

// Whose records are bound: a shard of the table, or a flight (shared/flight.wgsl), through which the rows of a staged table come and go.
struct Shard {
    first_row: u32, // the linear row of its first record
    rows: u32,
    phases: u32,    // PACK, UNPACK or both
    moves: u32,     // of a flight: how many Moves are carried out, at most; 0: a shard
    first_move: u32, // the first of them in the list
    capacity: u32,  // Moves a flight has room for
    // Words of `records`:
    forwards: u32,  // of each Move 0, or 1 + the Move of the last step with which the row that comes now left
    kept: u32,      // of each Move that keeps its victim, the record that has come for it
    arrivals: u32,  // the records that have come: of each Move's row, then of the kept victims
    leaving: u32,   // what leaves in this step
    left: u32,      // what left in the last one
    counter: u32,   // word of `tables` that counts the records that leave
}

fn in_shard(row: u32) -> bool { // false for NONE too
    return row - shard.first_row < shard.rows;
}
