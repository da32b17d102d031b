// Takes the rows that a caller's shaders want as the accesses of a step, in the place of linearize, and closes their
// frame: padding of the list, and the padding row of a table, are no access. Rows that the cache lacks come first, so that a list without room for all
// brings others in each frame. The host clears both numbers and the filter behind this stage. The workgroup that ends last
// decides whether the step takes place. One invocation for each entry of a list.
//
// Bytes moved per entry: 4 in, 4 out; with padding 20 for each feature.
#include "shared/common.wgsl"
#include "shared/feature.wgsl"
#include "shared/feedback.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> features: array<Feature>;
@group(0) @binding(2) var<storage, read_write> feedback: array<u32>;
@group(0) @binding(3) var<storage, read_write> tables: array<atomic<u32>>;
@group(0) @binding(4) var<storage, read_write> step: Step;
@group(0) @binding(5) var<storage, read_write> keys: array<u32>; // linear rows, then NONE

#include "shared/halvings.wgsl"
#include "shared/sets.wgsl"
#include "shared/begin.wgsl"

var<workgroup> accesses: atomic<u32>;

fn is_padding(row: u32) -> bool {
    for (var i = 0u; i < params.padded; i++) {
        let one = features[i];
        if (one.padded == 1u && one.padding < one.rows && row == one.base + one.padding) { return true; }
    }
    return false;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let i = flat_group(group, groups) * 256u + lane;
    let most = params.indices;
    let missing = min(feedback[FEEDBACK_MISSING], most);
    let here = missing + min(feedback[FEEDBACK_PRESENT], most - missing);
    if (i == 0u) {
        feedback[FEEDBACK_FRAME] += 1u;
        feedback[FEEDBACK_WANTED] += here;
        feedback[FEEDBACK_LOST] += feedback[FEEDBACK_MISSING] + feedback[FEEDBACK_PRESENT] - here;
    }
    if (lane == 0u) { atomicStore(&accesses, 0u); }
    workgroupBarrier();
    var row = NONE;
    if (i < missing) {
        row = feedback[FEEDBACK_HEAD + i];
    } else if (i < here) {
        row = feedback[FEEDBACK_HEAD + most + i - missing];
    }
    if (row != NONE && is_padding(row)) { row = NONE; }
    if (i < most) { keys[i] = row; }
    if (row != NONE) { atomicAdd(&accesses, 1u); }
    workgroupBarrier();
    if (lane == 0u) { atomicAdd(&step.accesses, atomicLoad(&accesses)); }
    if (is_last(groups, lane)) {
        begin();
        step.t = atomicLoad(&tables[0]);
    }
}
