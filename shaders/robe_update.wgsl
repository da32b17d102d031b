// The optimiser of a parameter-shared table: what each weight is due is summed over the starts whose chunks cover it, in ascending order,
// and over the chunks of a start in batch order; then the weight moves, once. Over all weights (dense), or over those from each start to
// the next as far as a chunk reaches (sparse): the same sums. A weight that no chunk covers stays as it is; so does one whose sum or
// new value is not finite, which is counted.
// Bytes a weight that is covered: 8 + 4 a chunk; 4 (1 + state) in and out. Dense: 16 log2(starts) a 256 weights, 16 a weight.
#include "shared/common.wgsl"
#include "shared/quad1.wgsl"
#include "shared/target.wgsl"
#include "shared/half.wgsl"
#include "shared/gradient1.wgsl"
#include "shared/robe.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<uniform> robe: Robe;
@group(0) @binding(2) var<storage, read> targets: array<Target>;
@group(0) @binding(3) var<storage, read> accesses: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read> grad_outputs: array<Words>;
@group(0) @binding(5) var<storage, read> scratch: array<f32>; // the partial rows of robe_merge
@group(0) @binding(6) var<storage, read_write> memory: array<f32>;
@group(0) @binding(7) var<storage, read_write> states: array<f32>;
@group(0) @binding(8) var<storage, read_write> tables: array<atomic<u32>>;

fn weight_quads() -> u32 {
    return params.dim;
}

#include "shared/tables.wgsl"
#include "shared/merge.wgsl"
#include "shared/robe_sum.wgsl"

const ADAGRAD: u32 = 1u;

var<workgroup> length: u32;
var<workgroup> within: array<u32, 2>; // the first start that matters to a block of weights, and the first beyond

// Of the chunks that begin at a start, at their weight e.
fn total_of(one: Target, e: u32) -> Sum {
    if (!is_heavy(one)) { return sum_of(one.start, one.end, e); }
    let row = 2u * (one.start / MERGE_CHUNK) + 1u;
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

fn move_weight(w: u32, sum: Sum) {
    if (sum.chunks == 0u) { return; }
    let before = memory[w];
    let g = sum.value + params.weight_decay * before;
    var by = params.lr * g;
    var squares = 0.0;
    if (params.optimizer == ADAGRAD) {
        squares = states[w] + g * g;
        by = by / (sqrt(squares) + params.eps);
    }
    let after = before - by;
    if (!is_finite(g) || !is_finite(after) || !is_finite(squares)) {
        count(0u, SKIPPED_ROWS, 1u);
        return;
    }
    memory[w] = after;
    if (params.optimizer == ADAGRAD) { states[w] = squares; }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
    if (local == 0u) { length = targets[0].row; }
    let n = workgroupUniformLoad(&length);
    unscale = bitcast<f32>(targets[0].end);
    let reach = i32(robe.reach);
    let block = flat_group(group, groups);
    let blocks = groups.x * groups.y;
    if (robe.dense == 1u) {
        for (var first = block * 256u; first < robe.weights; first += blocks * 256u) {
            if (local < 2u) { within[local] = first_beyond(select(i32(first) - reach, i32(first) + 255, local == 1u), 0u, n); }
            workgroupBarrier();
            let low = within[0];
            let high = within[1];
            workgroupBarrier(); // before the next block's
            let w = first + local;
            if (w < robe.weights) { move_weight(w, due(w, first_beyond(i32(w) - reach, low, high), high)); }
        }
    } else {
        for (var at = block * 256u + local; at < n * robe.reach; at += blocks * 256u) {
            let d = at / robe.reach;
            let w = targets[d + 1u].row + at % robe.reach;
            // What lies behind the next start is that one's.
            if (d + 1u < n) {
                if (targets[d + 2u].row <= w) { continue; }
            }
            let low = d - min(d, robe.reach - 1u);
            move_weight(w, due(w, first_beyond(i32(w) - reach, low, d), d + 1u));
        }
    }
}
