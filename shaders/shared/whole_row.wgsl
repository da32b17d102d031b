// The number of a row in its whole group, of whose rows this one may have every 2^row_shift-th (SPEC 11). Random bits go by it.
// Needs `params`.
fn whole_row(row: u32) -> u32 { return (row << params.row_shift) | params.row_first; }
