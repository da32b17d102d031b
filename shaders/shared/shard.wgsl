const PACK: u32 = 1u;   // FP32 rows to records
const UNPACK: u32 = 2u; // records to FP32 rows

// The records that are bound: neighbouring shards of the table or, for a staged table, a flight with the records that
// come and go (shared/flight.wgsl).
struct Shard {
    first_row: u32, // linear row of the first record
    rows: u32,
    rows_each: u32, // rows of each shard; the last may have fewer
    phases: u32,    // PACK, UNPACK or both
    moves: u32,     // the most Moves that are carried out with a flight; 0 for a shard
    first_move: u32, // the first of these Moves in the list
    capacity: u32,  // the most Moves that fit into the flight
    // Word positions in `records`:
    forwards: u32,  // for each Move 0, or 1 + the Move of the last step with which the coming row left
    kept: u32,      // for each Move that keeps its victim, the record of the victim
    arrivals: u32,  // the records from the host: one for each Move's row, then the kept victims
    leaving: u32,   // the departures of this step
    left: u32,      // the departures of the last step
    counter: u32,   // word of `tables` that counts departures
}

// A record: the bound shard that has it, and its first word there.
struct Record {
    shard: u32,
    word: u32,
}

fn in_shard(row: u32) -> bool { // false for NONE too
    return row - shard.first_row < shard.rows;
}

// The record of a row of the bound shards. Needs `params`.
fn own_record(row: u32) -> Record {
    let at = row - shard.first_row;
    let bound = at / shard.rows_each;
    return Record(bound, (at - bound * shard.rows_each) * params.record_words);
}
