// Adds up, in order, the partial sums of a row whose accesses lie in several tiles of merge.
#include "shared/common.wgsl"
#include "shared/merge.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> step: Step;
@group(0) @binding(2) var<storage, read> starts: array<u32>;
@group(0) @binding(3) var<storage, read> partials: array<f32>;
@group(0) @binding(4) var<storage, read_write> grads: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let u = flat_group(group, groups);
    if (u >= step.counts[COUNT_UNIQUE]) { return; }
    var end = step.counts[COUNT_VALID];
    if (u + 1u < step.counts[COUNT_UNIQUE]) { end = starts[u + 1u]; }
    let first_tile = starts[u] / MERGE_TILE;
    let last_tile = (end - 1u) / MERGE_TILE;
    if (first_tile == last_tile) { return; }
    for (var e = lane; e < params.dim; e += 64u) {
        var sum = partials[(2u * first_tile + 1u) * params.dim + e];
        for (var tile = first_tile + 1u; tile <= last_tile; tile++) {
            sum += partials[2u * tile * params.dim + e];
        }
        grads[u * params.dim + e] = sum;
    }
}
