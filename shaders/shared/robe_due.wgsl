// What a weight is due: summed over the starts whose chunks cover it, in ascending order, and over the chunks of a start in batch order.
// Needs `targets`, `scratch`, `robe`, shared/merge.wgsl, shared/robe_reach.wgsl, shared/robe_sum.wgsl.

var<workgroup> length: u32; // starts, where a workgroup wants to know
var<workgroup> within: array<u32, 2>; // the first start that matters to a block of weights, and the first beyond

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

// Of weight first + local < end, of a block of 256 that a workgroup takes together; there are n starts. In uniform control flow.
fn due_in_block(first: u32, local: u32, n: u32, end: u32) -> Sum {
    let reach = i32(robe.reach);
    workgroupBarrier(); // an earlier block's have been read
    if (local < 2u) { within[local] = first_beyond(select(i32(first) - reach, i32(first) + 255, local == 1u), 0u, n); }
    workgroupBarrier();
    let w = first + local;
    if (w >= end) { return Sum(0.0, 0u); }
    return due(w, first_beyond(i32(w) - reach, within[0], within[1]), within[1]);
}

// Of weight w, which lies behind start d and before the next.
fn due_from(w: u32, d: u32) -> Sum {
    return due(w, first_beyond(i32(w) - i32(robe.reach), d - min(d, robe.reach - 1u), d), d + 1u);
}

// Whether an update of n starts goes over all weights: a dense one, and a sparse one whose starts' chunks, laid side by side, would
// cover the array. They lie on each other, so that some are covered by none, but most are: to find out which costs more than to pass by.
fn goes_over_all(n: u32) -> bool {
    return robe.dense == 1u || n >= robe.weights / robe.reach;
}
