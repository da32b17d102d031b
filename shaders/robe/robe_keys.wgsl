// Lists every chunk of the batch: its first weight (the sort key), the position of its first gradient among the
// outputs' gradients, and its coefficient. One invocation for each chunk.
//
// Bytes moved per chunk: 12 in, 12 out.
#include "shared/common.wgsl"
#include "shared/robe.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<uniform> robe: Robe;
@group(0) @binding(2) var<storage, read_write> step: Step;
@group(0) @binding(3) var<storage, read> hashes: array<u32>;
@group(0) @binding(4) var<storage, read> access: array<vec2<u32>>;              // by index: output row, coefficient
@group(0) @binding(5) var<storage, read_write> chunk_keys: array<u32>;          // NONE if the index is left out
@group(0) @binding(6) var<storage, read_write> chunk_access: array<vec2<u32>>;  // first gradient, coefficient

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let k = flat_group(group, groups) * 256u + lane;
    if (k == 0u) { step.counts[COUNT_CHUNKS] = step.counts[COUNT_INDICES] * robe.chunks; }
    if (k >= params.indices * robe.chunks) { return; }
    let i = k / robe.chunks;
    let j = k % robe.chunks;
    let hash = hashes[i];
    chunk_keys[k] = select(start_of(hash, chunk_hash(j), robe.starts), NONE, hash == NONE);
    let one = access[i];
    chunk_access[k] = vec2<u32>(one.x * robe.dim + j * robe.chunk, one.y);
}
