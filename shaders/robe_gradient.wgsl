// The gradient by every shared weight, for an optimiser of the caller's: the sums by which robe_update moves, and 0 where no chunk lies.
// Bytes a weight: 4 out; one that is covered: 8 + 4 a chunk. 16 log2(starts) a 256 weights.
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
@group(0) @binding(6) var<storage, read_write> sums: array<f32>; // one a weight

fn weight_quads() -> u32 {
    return params.dim;
}

#include "shared/merge.wgsl"
#include "shared/robe_reach.wgsl"
#include "shared/robe_sum.wgsl"
#include "shared/robe_due.wgsl"

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
    if (local == 0u) { length = targets[0].row; }
    let n = workgroupUniformLoad(&length);
    unscale = bitcast<f32>(targets[0].end);
    for (var first = flat_group(group, groups) * 256u; first < robe.weights; first += groups.x * groups.y * 256u) {
        let sum = due_in_block(first, local, n, robe.weights);
        if (first + local < robe.weights) { sums[first + local] = sum.value; }
    }
}
