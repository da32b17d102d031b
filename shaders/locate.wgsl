// Back from distinct rows to the indices: where each index's row is.
#include "shared/common.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> step: Step;
@group(0) @binding(2) var<storage, read> keys: array<u32>;    // sorted linear rows
@group(0) @binding(3) var<storage, read> order: array<u32>;   // the index each came from
@group(0) @binding(4) var<storage, read> segment: array<u32>; // its place in `unique`
@group(0) @binding(5) var<storage, read> unique: array<Unique>;
@group(0) @binding(6) var<storage, read_write> places: array<u32>; // slot, slots + u for scratch, NONE if left out

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let j = flat_group(group, groups) * 256u + lane;
    if (j >= params.indices) { return; }
    if (step.counts[COUNT_INDICES] == 0u) {
        places[j] = NONE; // a step that does not take place: outputs are zero
    } else if (keys[j] == NONE) {
        places[order[j]] = NONE;
    } else {
        places[order[j]] = unique[segment[j]].slot;
    }
}
