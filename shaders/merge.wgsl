// Sums the gradients of each distinct row over tiles of sorted accesses. Work follows the accesses, not the rows, so a row
// that takes half the batch slows nothing down; the order of the sum is fixed, so the bits are the same run after run.
#include "shared/common.wgsl"
#include "shared/merge.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> step: Step;
@group(0) @binding(2) var<storage, read> order: array<u32>;
@group(0) @binding(3) var<storage, read> segment: array<u32>;
@group(0) @binding(4) var<storage, read> access: array<vec2<u32>>;
@group(0) @binding(5) var<storage, read> grad_outputs: array<f32>;
@group(0) @binding(6) var<storage, read_write> grads: array<f32>;    // of rows that lie in one tile
@group(0) @binding(7) var<storage, read_write> partials: array<f32>; // 2 a tile: of the row that began before it, and of the row that goes on

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let tile = flat_group(group, groups);
    let valid = step.counts[COUNT_VALID];
    let first = tile * MERGE_TILE;
    if (first >= valid) { return; }
    let end = min(first + MERGE_TILE, valid);
    var began_before = false;
    if (first > 0u) { began_before = segment[first - 1u] == segment[first]; }
    var goes_on = false;
    if (end < valid) { goes_on = segment[end] == segment[end - 1u]; }
    for (var e = lane; e < params.dim; e += 64u) {
        var sum = 0.0;
        for (var j = first; j < end; j++) {
            let u = segment[j];
            let one = access[order[j]];
            sum += bitcast<f32>(one.y) * grad_outputs[one.x * params.dim + e];
            if (j + 1u < end) {
                if (segment[j + 1u] == u) { continue; }
            }
            if (began_before && u == segment[first]) {
                partials[2u * tile * params.dim + e] = sum;
            } else if (goes_on && j + 1u == end) {
                partials[(2u * tile + 1u) * params.dim + e] = sum;
            } else {
                grads[u * params.dim + e] = sum;
            }
            sum = 0.0;
        }
    }
}
