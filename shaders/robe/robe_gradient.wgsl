// Writes the gradient of every shared weight: the sum that robe_update would apply, and -0.0 where no chunk lies.
//
// Bytes moved per weight: 4 out; per covered weight: 8 + 4 for each chunk; to find its starts: as robe_update, Dense.
#include "shared/robe_sum.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<uniform> robe: Robe;
@group(0) @binding(2) var<storage, read> targets: array<Target>;
@group(0) @binding(3) var<storage, read> accesses: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read> grad_outputs: array<Words>;
@group(0) @binding(5) var<storage, read> scratch: array<f32>; // the partial rows of robe_merge
@group(0) @binding(6) var<storage, read_write> sums: array<u32>; // floats as bits, one for each weight

#include "shared/robe_weight_sums.wgsl"
#include "shared/robe_walk.wgsl"

fn take(w: u32, sum: Sum) {
    let bits = bits_of(sum.value);
    // The sum of a covered weight is never -0.0, whatever a device makes of zeros.
    sums[w] = select(UNCOVERED, select(bits, 0u, bits == UNCOVERED), sum.chunks > 0u);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
    if (local == 0u) { length = targets[0].row; }
    let n = workgroupUniformLoad(&length);
    unscale = bitcast<f32>(targets[0].end);
    let share = share_of(vec2<u32>(0u, robe.weights), flat_group(group, groups), groups.x * groups.y);
    let starts = owners(share, local, n);
    if (would_cover(starts, share)) {
        over_blocks(share, local, n);
    } else {
        for (var w = share.x + local; w < share.y; w += 256u) { sums[w] = UNCOVERED; }
        storageBarrier(); // they are written before the sums; no workgroup writes to another's share
        over_starts(starts, starts_at_once(), share, local, n);
    }
}
