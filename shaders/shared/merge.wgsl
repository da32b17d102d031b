// The order of a row's sum (SPEC 3, Backward): its accesses in batch order, in chunks of MERGE_CHUNK counted from its
// own first access. A row of one chunk is summed by update; a *heavy* row, of several chunks, by merge and combine. So
// the bits depend only on the row's own accesses.
const MERGE_CHUNK: u32 = 32u;

// Tile T covers the sorted accesses 32 T to 32 T + 31. At most one chunk of a heavy row that began earlier begins in
// it; its sum is partial row 2 T. At most one heavy row begins in it; the sum of its first chunk, later the row's
// total, is partial row 2 T + 1.
fn partial_at(row: u32, q: u32) -> u32 {
    return params.partials + row * weight_quads() + q;
}

// The partial row that the nth share of a workgroup sums: those of one row lie with neighbouring workgroups, so that a row with a tenth of all accesses
// keeps no workgroup longer than others.
fn partial_of(nth: u32, group: vec3<u32>, groups: vec3<u32>) -> u32 {
    return flat_group(group, groups) + nth * groups.x * groups.y;
}
