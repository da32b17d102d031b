// Sums the gradient of a weight over the starts whose chunks cover it, in ascending order, and over the chunks of a
// start in batch order. Needs `targets`, `scratch`, `robe`, shared/robe_sum.wgsl.

var<workgroup> length: u32; // number of starts, read once by the workgroup
var<workgroup> within: array<u32, 2>; // result of `starts_within`; an array, because two invocations must not write components of one vector

// Sums the chunks that begin at a start, at their weight e.
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

// Sums all chunks that cover weight w. `first` is the first start that reaches w, `end` lies beyond the last.
fn sum_at(w: u32, first: u32, end: u32) -> Sum {
    var sum = Sum(0.0, 0u);
    if (robe.given == 1u && bits_of(grad_output(w)) == UNCOVERED) { return sum; }
    for (var d = first; d < end; d++) {
        let one = targets[d + 1u];
        if (one.row > w) { break; }
        let total = total_of(one, w - one.row);
        sum.value = plus(sum.value, total.value);
        sum.chunks += total.chunks;
    }
    return sum;
}

// The sum of weight w, which lies at or after start d and before the next start.
fn due_from(w: u32, d: u32) -> Sum {
    return sum_at(w, first_beyond(i32(w) - i32(robe.reach), d - min(d, robe.reach - 1u), d), d + 1u);
}

// The sum of weight w of a block of 256, given the starts that matter to the block.
fn due_within(w: u32, starts: vec2<u32>) -> Sum {
    return sum_at(w, first_beyond(i32(w) - i32(robe.reach), starts.x, starts.y), starts.y);
}

// Whether an update with n starts goes over all weights.
fn goes_over_all(n: u32) -> bool {
    return n >= robe.dense_from;
}

// The weights, from window.x to window.y - 1, that a workgroup goes over: neighbouring blocks of 256, as many for each
// workgroup.
fn share_of(window: vec2<u32>, group: u32, groups: u32) -> vec2<u32> {
    let blocks = (window.y - window.x + 255u) / 256u;
    let each = (blocks + groups - 1u) / groups * 256u;
    return min(window.x + vec2<u32>(group, group + 1u) * each, window.yy);
}

// The starts that matter to a block of 256 weights, ascending: the first that reaches it, and the first beyond it. A
// workgroup searches them for its first block; each further block has at most 256 new ones, for its 256 weights. The
// functions below must be called in uniform control flow.

// The starts of the block before weight `first`, as far as they matter to the next block.
fn starts_before(first: u32, local: u32, n: u32) -> vec2<u32> {
    if (local < 2u) { within[local] = first_beyond(i32(first) - select(i32(robe.reach), 1, local == 1u), 0u, n); }
    return found_within();
}

// The starts of the block at weight `first`, given the starts of the block before.
fn starts_within(first: u32, before: vec2<u32>, local: u32, n: u32) -> vec2<u32> {
    find_beyond(i32(first) - i32(robe.reach), before.x, 0u, local, n);
    find_beyond(i32(first) + 255, before.y, 1u, local, n);
    return found_within();
}

fn found_within() -> vec2<u32> {
    let found = workgroupUniformLoad(&within);
    return vec2<u32>(found[0], found[1]);
}

// The first start from `low` on, at most 256 further, that is beyond `limit`. Of 256 invocations, the one that finds
// this start writes its number.
fn find_beyond(limit: i32, low: u32, which: u32, local: u32, n: u32) {
    let d = low + local;
    if (d > n || (local > 0u && i32(targets[d].row) > limit)) { return; }
    if (d == n || i32(targets[d + 1u].row) > limit) {
        within[which] = d;
    } else if (local == 255u) {
        within[which] = d + 1u;
    }
}
