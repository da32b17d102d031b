// The 256 invocations of a workgroup, for subgroups of any size; `run` is the stage.
struct Lane { index: u32 }

fn lane_index(lane: Lane) -> u32 { return lane.index; }

// A struct with these builtins is no argument of `main`: wgpu's HLSL has no semantics for its members.
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) index: u32) {
    run(group, groups, Lane(index));
}
