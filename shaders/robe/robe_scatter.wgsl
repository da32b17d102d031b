// Backward without a sort (Backward::Atomic): adds the gradient of each element to its weight's sum, in any order. One
// invocation for each element. If a weight may move by a sum of 0 (robe.marks), one bit for each weight marks the covered
// weights.
//
// Bytes moved per access: 12 in; per element: 4 in, 8 for the sum, with marks 4 for the mark.
#include "shared/common.wgsl"
#include "shared/quad1.wgsl"
#include "shared/half.wgsl"
#include "shared/gradient1.wgsl"
#include "shared/robe.wgsl"
#include "shared/scaler.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<uniform> robe: Robe;
@group(0) @binding(2) var<uniform> scaler: ScalerState;
@group(0) @binding(3) var<storage, read> hashes: array<u32>;
@group(0) @binding(4) var<storage, read> access: array<vec2<u32>>; // by index: output row, coefficient
@group(0) @binding(5) var<storage, read> grad_outputs: array<Words>;
@group(0) @binding(6) var<storage, read_write> sums: array<Added>; // one for each weight
@group(0) @binding(7) var<storage, read_write> covered: array<atomic<u32>>; // one bit for each weight
@group(0) @binding(8) var<uniform> step: array<vec4<u32>, 5>; // `Step` as words

#include "shared/add_{add}.wgsl"

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
    if (scaler.overflow != 0u || any(step[4].xz != step[4].yw)) { return; } // nothing in the table moves
    let first = flat_group(group, groups) * 256u + local;
    for (var at = first; at < params.indices * robe.dim; at += groups.x * groups.y * 256u) {
        let i = at / robe.dim;
        let hash = hashes[i];
        if (hash == NONE) { continue; }
        let column = at % robe.dim;
        let one = access[i];
        var g = scaler.inverse * grad_output(one.x * robe.dim + column);
        if (params.weighted == 1u || params.pooling == MEAN) { g = bitcast<f32>(one.y) * g; }
        let w = start_of(hash, chunk_hash(column / robe.chunk), robe.starts) + column % robe.chunk;
        add(w, g);
        if (robe.marks == 1u) {
            let mark = 1u << (w & 31u);
            if ((atomicLoad(&covered[w / 32u]) & mark) == 0u) { atomicOr(&covered[w / 32u], mark); }
        }
    }
}
