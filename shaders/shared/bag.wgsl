// Finds the bag of an index: the last bag that begins at or before the index. An empty bag begins where the next bag
// does. Needs `offsets: array<u32>` and `params`. The search stays inside `offsets` for any values in it.

var<workgroup> not_after: array<atomic<u32>, 2>;
var<workgroup> skipped_bags: vec2<u32>;

// Searches the bags of two indices with the whole workgroup: 256 offsets a round for each, so two rounds find them
// among 65,536 bags. Begins with a barrier.
fn bags_by_group(i: vec2<u32>, lane: u32) -> vec2<u32> {
    var low = vec2<u32>(0u);
    var size = vec2<u32>(params.bags);
    if (lane < 2u) { atomicStore(&not_after[lane], 0u); }
    workgroupBarrier();
    while (max(size.x, size.y) > 1u) {
        let stride = (size + 255u) / 256u;
        let at = lane * stride;
        let together = low.x == low.y && size.x == size.y; // both search one range, so one load serves both
        if (at.x < size.x) {
            let begins = offsets[low.x + at.x];
            if (begins <= i.x) { atomicMax(&not_after[0], lane); }
            if (together && begins <= i.y) { atomicMax(&not_after[1], lane); }
        }
        if (!together && at.y < size.y) {
            if (offsets[low.y + at.y] <= i.y) { atomicMax(&not_after[1], lane); }
        }
        workgroupBarrier();
        if (lane == 0u) {
            skipped_bags = vec2<u32>(atomicLoad(&not_after[0]), atomicLoad(&not_after[1])) * stride;
            atomicStore(&not_after[0], 0u); // for the next round
            atomicStore(&not_after[1], 0u);
        }
        let skip = workgroupUniformLoad(&skipped_bags);
        low += skip;
        size = min(stride, size - skip);
    }
    return low;
}

// Searches with one invocation, among the bags from `first` to `last`.
fn bag_between(i: u32, first: u32, last: u32) -> u32 {
    var low = first;
    var high = last + 1u;
    while (high > low + 1u) {
        let middle = low + (high - low) / 2u;
        if (offsets[middle] <= i) { low = middle; } else { high = middle; }
    }
    return low;
}
