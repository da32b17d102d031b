// What a weight is due: summed over the starts whose chunks cover it, in ascending order, and over the chunks of a start in batch order.
// Needs `targets`, `scratch`, `robe`, shared/merge.wgsl, shared/robe_reach.wgsl, shared/robe_sum.wgsl.

var<workgroup> length: u32; // starts, where a workgroup wants to know
var<workgroup> within: array<u32, 2>; // as `starts_within`; no vector, whose components no two invocations may write at once

// Of the chunks that begin at a start, at their weight e.
fn total_of(one: Target, e: u32) -> Sum {
    if (!is_heavy(one)) { return sum_of(one.start, one.end, e); }
    let row = partial_row(one);
    let reached = e < robe.tail || scratch[partial_at(row, robe.reach)] > 0.0;
    return Sum(scratch[partial_at(row, e)], select(0u, 1u, reached));
}

// The first start from `low` to `high` - 1 that is beyond `before`; `high` if none is.
fn first_beyond(before: i32, low: u32, high: u32) -> u32 {
    var first = low;
    var end = high;
    while (first < end) {
        let middle = first + (end - first) / 2u;
        if (i32(targets[middle + 1u].row) <= before) { first = middle + 1u; } else { end = middle; }
    }
    return first;
}

// Of all chunks that cover weight w; `first` is the first start that reaches so far, `end` is beyond the last.
fn due(w: u32, first: u32, end: u32) -> Sum {
    var sum = Sum(0.0, 0u);
    for (var d = first; d < end; d++) {
        let one = targets[d + 1u];
        if (one.row > w) { break; }
        let total = total_of(one, w - one.row);
        sum.value += total.value;
        sum.chunks += total.chunks;
    }
    return sum;
}

// Of weight w, which lies behind start d and before the next.
fn due_from(w: u32, d: u32) -> Sum {
    return due(w, first_beyond(i32(w) - i32(robe.reach), d - min(d, robe.reach - 1u), d), d + 1u);
}

// Of weight w of a block of 256, of which these are the starts within.
fn due_within(w: u32, starts: vec2<u32>) -> Sum {
    return due(w, first_beyond(i32(w) - i32(robe.reach), starts.x, starts.y), starts.y);
}

// Whether an update of n starts goes over all weights.
fn goes_over_all(n: u32) -> bool {
    return n >= robe.dense_from;
}

// Of weights window.x to window.y - 1 those that a workgroup goes over: neighbouring blocks of 256, as many for each.
fn share_of(window: vec2<u32>, group: u32, groups: u32) -> vec2<u32> {
    let blocks = (window.y - window.x + 255u) / 256u;
    let each = (blocks + groups - 1u) / groups * 256u;
    return min(window.x + vec2<u32>(group, group + 1u) * each, window.yy);
}

// The starts that matter to a block of 256 weights, ascending: the first that reaches so far, and the first beyond. A workgroup looks for
// those of its first block; then, block by block, there are no more than 256 new ones, for as many weights. All in uniform control flow.

// Those of the block before weight `first`, as far as they matter to the next.
fn starts_before(first: u32, local: u32, n: u32) -> vec2<u32> {
    if (local < 2u) { within[local] = first_beyond(i32(first) - select(i32(robe.reach), 1, local == 1u), 0u, n); }
    return found_within();
}

// Those of the block at weight `first`, out of those of the block before.
fn starts_within(first: u32, before: vec2<u32>, local: u32, n: u32) -> vec2<u32> {
    find_beyond(i32(first) - i32(robe.reach), before.x, 0u, local, n);
    find_beyond(i32(first) + 255, before.y, 1u, local, n);
    return found_within();
}

fn found_within() -> vec2<u32> {
    let found = workgroupUniformLoad(&within);
    return vec2<u32>(found[0], found[1]);
}

// The first start from `low` on, at most 256 further, that is beyond `limit`: one of 256 invocations says so.
fn find_beyond(limit: i32, low: u32, which: u32, local: u32, n: u32) {
    let d = low + local;
    if (d > n || (local > 0u && i32(targets[d].row) > limit)) { return; }
    if (d == n || i32(targets[d + 1u].row) > limit) {
        within[which] = d;
    } else if (local == 255u) {
        within[which] = d + 1u;
    }
}
