// The order of a row's sum (SPEC 3, backward): its accesses in batch order, in chunks of MERGE_CHUNK from its own first; a row of one
// chunk is summed by update, a heavy row of several by merge and combine. So the bits depend on nothing but the row's accesses.
const MERGE_CHUNK: u32 = 128u;

// Tile T covers sorted accesses 128 T to 128 T + 127. At most one chunk of a heavy row that began earlier starts in it: its sum
// is partial row 2 T. At most one heavy row begins in it: its first chunk's sum, later its total, is partial row 2 T + 1.
fn partial_at(row: u32, q: u32) -> u32 {
    return params.partials + row * weight_quads() + q;
}
