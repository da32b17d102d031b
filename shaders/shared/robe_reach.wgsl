// The reach of chunks. Needs `params`, `robe`, shared/target.wgsl.
#include "shared/merge.wgsl"

fn weight_quads() -> u32 {
    return params.dim;
}

// Number of weights of the chunk whose first gradient is `first`.
fn reach_of(first: u32) -> u32 {
    if (robe.tail == robe.reach) { return robe.reach; }
    return select(robe.reach, robe.tail, first % robe.dim + robe.tail == robe.dim);
}

// Whether a start has so many chunks that a partial row holds their sums, followed by the number of chunks that reach
// the last weight.
fn is_heavy(one: Target) -> bool {
    return one.end - one.start > MERGE_CHUNK;
}

fn partial_row(one: Target) -> u32 {
    return 2u * (one.start / MERGE_CHUNK) + 1u;
}
