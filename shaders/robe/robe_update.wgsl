// Runs the optimiser of a parameter-shared table. The gradient of a weight is summed over the starts whose chunks cover
// it, in ascending order, and over the chunks of a start in batch order; then the weight moves, once. Dense: each
// workgroup has a share of the weights, and goes over all of them where chunks cover most, else over the starts in it.
// Sparse: each workgroup has a share of the starts, and goes over the weights from each start to the next as far as a
// chunk reaches; if chunks may cover most of the array, it works as Dense. Both give the same sums. A weight that no
// chunk covers stays as it is. A weight whose sum or new value is not finite stays too, and is counted. Dispatched once
// for each window of the array.
//
// Bytes moved per covered weight: 8 + 4 for each chunk; 4 (1 + state) in and out; per share: 64 log2(starts). By blocks
// of 256 weights: 32, and 16 for each start, per block, and 16 (1 + log2(starts of the block)) per weight. By starts:
// 32 per start, and 16 (1 + log2(starts within a chunk's reach)) per weight.
#include "shared/robe_sum.wgsl"
#include "shared/rate.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<uniform> robe: Robe;
@group(0) @binding(2) var<storage, read> targets: array<Target>;
@group(0) @binding(3) var<storage, read> accesses: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read> grad_outputs: array<Words>;
@group(0) @binding(5) var<storage, read> scratch: array<f32>; // the partial rows of robe_merge
@group(0) @binding(6) var<storage, read_write> memory: array<f32>; // one window; `states` is the same window
@group(0) @binding(7) var<storage, read_write> states: array<f32>;
@group(0) @binding(8) var<storage, read_write> tables: array<atomic<u32>>;
@group(0) @binding(9) var<uniform> rate: Rate;

#include "shared/tables.wgsl"
#include "shared/robe_weight_sums.wgsl"
#include "shared/correction.wgsl"
#include "shared/robe_move.wgsl"
#include "shared/robe_words.wgsl"
#include "shared/robe_walk.wgsl"

// A weight that no chunk covers stays as it is.
fn take(w: u32, sum: Sum) {
    if (sum.chunks > 0u) { move_weight(w, sum.value); }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
    if (local == 0u) { length = targets[0].row; }
    let n = workgroupUniformLoad(&length);
    unscale = bitcast<f32>(targets[0].end);
    at_step(targets[0].start);
    let end = min(robe.first + robe.window, robe.weights);
    let block = flat_group(group, groups);
    let blocks = groups.x * groups.y;
    let window = vec2<u32>(robe.first, end);
    if (goes_over_all(n)) {
        let share = share_of(window, block, blocks);
        let starts = owners(share, local, n);
        if (would_cover(starts, share)) {
            over_blocks(share, local, n);
        } else {
            over_starts(starts, starts_at_once(), share, local, n);
        }
    } else {
        over_starts(vec2<u32>(block * starts_at_once(), n), blocks * starts_at_once(), window, local, n);
    }
}
