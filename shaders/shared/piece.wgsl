const PACK: u32 = 1u;   // FP32 rows to records
const UNPACK: u32 = 2u; // records to FP32 rows

// The records that are bound: neighbouring pieces of the table or, for a staged table, a transfer with the records that
// come and go (shared/transfer.wgsl).
struct Piece {
    first_row: u32, // linear row of the first record
    rows: u32,
    rows_each: u32, // rows of each piece; the last may have fewer
    phases: u32,    // PACK, UNPACK or both
    swaps: u32,     // the most swaps that are carried out with a transfer; 0 for a piece
    first_swap: u32, // the first of these swaps in the list
    capacity: u32,  // the most swaps that fit into the transfer
    // Word positions in `records`:
    forwards: u32,  // for each swap 0, or 1 + the swap of the last step with which the coming row left
    kept: u32,      // for each swap that keeps its victim, the record of the victim
    arrivals: u32,  // the records from the host: one for each swap's row, then the kept victims
    leaving: u32,   // the departures of this step
    left: u32,      // the departures of the last step
    counter: u32,   // word of `tables` that counts departures
}

// A record: the bound piece that has it, and its first word there.
struct Record {
    piece: u32,
    word: u32,
}

fn in_piece(row: u32) -> bool { // false for NONE too
    return row - piece.first_row < piece.rows;
}

// The record of a row of the bound pieces. Needs `params`.
fn own_record(row: u32) -> Record {
    let at = row - piece.first_row;
    let bound = at / piece.rows_each;
    return Record(bound, (at - bound * piece.rows_each) * params.record_words);
}
