// The optimiser of a parameter-shared table: what each weight is due is summed over the starts whose chunks cover it, in ascending order,
// and over the chunks of a start in batch order; then the weight moves, once. Over all weights (dense), or over those from each start to
// the next as far as a chunk reaches (sparse, unless they are most of the array): the same sums. A weight that no chunk covers stays as it
// is; so does one whose sum or new value is not finite, which is counted. Dispatched once a window of the array.
// Bytes a weight that is covered: 8 + 4 a chunk; 4 (1 + state) in and out. Over all: 16 log2(starts) a 256 weights, 16 a weight; else 32 a
// start, and of it a weight 16 (1 + log2(starts within a chunk's reach)).
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
@group(0) @binding(6) var<storage, read_write> memory: array<f32>; // a window of it, as of the states
@group(0) @binding(7) var<storage, read_write> states: array<f32>;
@group(0) @binding(8) var<storage, read_write> tables: array<atomic<u32>>;

fn weight_quads() -> u32 {
    return params.dim;
}

#include "shared/tables.wgsl"
#include "shared/merge.wgsl"
#include "shared/robe_reach.wgsl"
#include "shared/robe_sum.wgsl"
#include "shared/robe_due.wgsl"
#include "shared/robe_move.wgsl"

var<workgroup> owns: array<u32, 256>; // how many weights the starts of a block own
var<workgroup> ends: array<u32, 256>; // the same, added up

// Weights from start d to the next, as far as a chunk reaches: what lies behind the next start is that one's.
fn owned(d: u32, n: u32) -> u32 {
    if (d >= n) { return 0u; }
    if (d + 1u == n) { return robe.reach; }
    return min(robe.reach, targets[d + 2u].row - targets[d + 1u].row);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
    if (local == 0u) { length = targets[0].row; }
    let n = workgroupUniformLoad(&length);
    unscale = bitcast<f32>(targets[0].end);
    let end = min(robe.first + robe.window, robe.weights);
    let block = flat_group(group, groups);
    let blocks = groups.x * groups.y;
    if (goes_over_all(n)) {
        for (var first = robe.first + block * 256u; first < end; first += blocks * 256u) {
            let sum = due_in_block(first, local, n, end);
            if (sum.chunks > 0u) { move_weight(first + local, sum.value); }
        }
    } else {
        // Starts may own a weight each or robe.reach: the invocations share the weights, not the starts.
        let starts = 256u / min(1u << firstLeadingBit(robe.reach), 8u);
        for (var first = block * starts; first < n; first += blocks * starts) {
            if (local < starts) { owns[local] = owned(first + local, n); }
            workgroupBarrier(); // and the block before has been done
            if (local < starts) {
                var all = 0u;
                if (robe.reach == 1u) {
                    all = min(local + 1u, n - first); // each owns one
                } else {
                    for (var d = 0u; d <= local; d++) { all += owns[d]; }
                }
                ends[local] = all;
            }
            workgroupBarrier();
            let all = ends[starts - 1u];
            for (var at = local; at < all; at += 256u) {
                var k = 0u;
                for (var jump = starts / 2u; jump > 0u; jump /= 2u) {
                    if (ends[k + jump - 1u] <= at) { k += jump; }
                }
                var before = 0u;
                if (k > 0u) { before = ends[k - 1u]; }
                let w = targets[first + k + 1u].row + (at - before);
                if (w < robe.first || w >= end) { continue; } // another window's
                let sum = due_from(w, first + k);
                if (sum.chunks > 0u) { move_weight(w, sum.value); }
            }
        }
    }
}
