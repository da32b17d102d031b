// Finds the bag of an index: the last bag that begins at or before the index. An empty bag begins where the next bag
// does. Needs `offsets: array<u32>` and `params`. The search stays inside `offsets` for any values in it.

var<workgroup> not_after: atomic<u32>;
var<workgroup> found_bag: u32;

// Searches with the whole workgroup: 256 offsets a round, so two rounds find one of 65,536 bags.
fn bag_by_group(i: u32, lane: u32) -> u32 {
    var low = 0u;
    var size = params.bags;
    while (size > 1u) {
        let stride = (size + 255u) / 256u;
        if (lane == 0u) { atomicStore(&not_after, 0u); }
        workgroupBarrier();
        let at = lane * stride;
        if (at < size) {
            if (offsets[low + at] <= i) { atomicMax(&not_after, lane); }
        }
        workgroupBarrier();
        if (lane == 0u) { found_bag = atomicLoad(&not_after) * stride; }
        let skip = workgroupUniformLoad(&found_bag);
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
