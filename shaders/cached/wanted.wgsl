// Takes the rows that a caller's shaders want as the accesses of a step, in the place of linearize, and closes their
// frame: padding of the list is no access. Rows that the cache lacks come first, so that a list without room for all
// brings others in each frame. The host clears both numbers and the filter behind this stage. One invocation for each
// entry of a list.
//
// Bytes moved per entry: 4 in, 4 out.
#include "shared/common.wgsl"
#include "shared/feedback.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> feedback: array<u32>;
@group(0) @binding(2) var<storage, read_write> step: Step;
@group(0) @binding(3) var<storage, read_write> keys: array<u32>; // linear rows, then NONE

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
        atomicStore(&step.accesses, here);
    }
    if (i >= most) { return; }
    var row = NONE;
    if (i < missing) {
        row = feedback[FEEDBACK_HEAD + i];
    } else if (i < here) {
        row = feedback[FEEDBACK_HEAD + most + i - missing];
    }
    keys[i] = row;
}
