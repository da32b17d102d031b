// The shared weights that chunks cover, ascending, and the gradient by each: the sums by which robe_update moves.
// Bytes a weight that is covered: 8 + 4 a chunk, 28 to find its place, 8 out.
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
@group(0) @binding(6) var<storage, read> runs: array<vec2<u32>>; // of robe_runs
@group(0) @binding(7) var<storage, read> blocks: array<u32>;     // the same, scanned: weights before each block's
@group(0) @binding(8) var<storage, read_write> locations: array<u32>;
@group(0) @binding(9) var<storage, read_write> sums: array<f32>;

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
    let first = flat_group(group, groups) * 256u + local;
    for (var at = first; at < n * robe.reach; at += groups.x * groups.y * 256u) {
        let d = at / robe.reach;
        let e = at % robe.reach;
        let run = runs[d];
        if (e >= run.y) { continue; }
        let w = targets[d + 1u].row + e;
        let place = blocks[d / 256u] + run.x + e;
        locations[place] = w;
        sums[place] = due_from(w, d).value;
    }
}
