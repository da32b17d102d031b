// The two ways to visit the weights that chunks cover; each calls `take(w, sum)`, which the including stage defines.
// Needs shared/robe_weight_sums.wgsl.

var<workgroup> owns: array<u32, 256>; // number of weights that each start of a turn owns
var<workgroup> ends: array<u32, 256>; // prefix sums of `owns`

// Number of starts that a workgroup takes in a turn: they own at most eight times as many weights as there are
// invocations.
fn starts_at_once() -> u32 {
    return 256u / min(1u << firstLeadingBit(robe.reach), 8u);
}

// Number of weights that start d owns: the weights up to the next start, but at most robe.reach.
fn owned(d: u32, end: u32, n: u32) -> u32 {
    if (d >= end) { return 0u; }
    if (d + 1u == n) { return robe.reach; }
    return min(robe.reach, targets[d + 2u].row - targets[d + 1u].row);
}

// Visits the weights from share.x to share.y - 1 that `starts` own, in a turn every `stride` starts. A start may own
// one weight or robe.reach weights, so the invocations share the weights, not the starts. All of these functions must
// be in uniform control flow.
fn over_starts(starts: vec2<u32>, stride: u32, share: vec2<u32>, local: u32, n: u32) {
    let turn = starts_at_once();
    for (var first = starts.x; first < starts.y; first += stride) {
        if (local < turn) { owns[local] = owned(first + local, starts.y, n); }
        workgroupBarrier(); // all invocations have also finished the last turn
        if (local < turn) {
            var all = 0u;
            if (robe.reach == 1u) {
                all = min(local + 1u, starts.y - first); // each start owns one weight
            } else {
                for (var d = 0u; d <= local; d++) { all += owns[d]; }
            }
            ends[local] = all;
        }
        workgroupBarrier();
        let all = ends[turn - 1u];
        for (var at = local; at < all; at += 256u) {
            var k = 0u;
            for (var jump = turn / 2u; jump > 0u; jump /= 2u) {
                if (ends[k + jump - 1u] <= at) { k += jump; }
            }
            var before = 0u;
            if (k > 0u) { before = ends[k - 1u]; }
            let w = targets[first + k + 1u].row + (at - before);
            if (w >= share.x && w < share.y) { take(w, due_from(w, first + k)); }
        }
    }
}

// Visits all weights from share.x to share.y - 1, in blocks of 256.
fn over_blocks(share: vec2<u32>, local: u32, n: u32) {
    var starts = starts_before(share.x, local, n);
    for (var first = share.x; first < share.y; first += 256u) {
        starts = starts_within(first, starts, local, n);
        let w = first + local;
        if (w < share.y) { take(w, due_within(w, starts)); }
    }
}

// The range of the starts that own weights of a share. Its first start is the last one at or before share.x.
fn owners(share: vec2<u32>, local: u32, n: u32) -> vec2<u32> {
    if (local < 2u) { within[local] = first_beyond(select(i32(share.x), i32(share.y) - 1, local == 1u), 0u, n); }
    let found = found_within();
    return vec2<u32>(max(found.x, 1u) - 1u, found.y);
}

// Whether the chunks of these starts, laid side by side, would cover the share. If so, visiting all weights of the
// share is cheaper.
fn would_cover(starts: vec2<u32>, share: vec2<u32>) -> bool {
    return (starts.y - min(starts.x, starts.y)) * robe.reach >= share.y - share.x;
}
