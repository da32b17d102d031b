// The order of a row's sum (SPEC 3, Backward): its accesses in batch order, in chunks of MERGE_CHUNK counted from its
// own first access. A row of one chunk is summed by update; a *heavy* row, of several chunks, by merge and combine. So
// the bits depend only on the row's own accesses.
const MERGE_CHUNK: u32 = 128u;

// Tile T covers the sorted accesses 128 T to 128 T + 127. At most one chunk of a heavy row that began earlier begins in
// it; its sum is partial row 2 T. At most one heavy row begins in it; the sum of its first chunk, later the row's
// total, is partial row 2 T + 1.
fn partial_at(row: u32, q: u32) -> u32 {
    return params.partials + row * weight_quads() + q;
}
