// The 256 invocations of a workgroup as 8 subgroups of exactly 32; `run` is the stage.
struct Lane {
    subgroup: u32,
    invocation: u32,
}

fn subgroup_lanes(lane: Lane) -> u32 { return 32u; }

fn lane_index(lane: Lane) -> u32 { return lane.subgroup * 32u + lane.invocation; }

// A struct with these builtins is no argument of `main`: wgpu's HLSL has no semantics for its members.
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(subgroup_id) subgroup: u32, @builtin(subgroup_invocation_id) invocation: u32) {
    run(group, groups, Lane(subgroup, invocation));
}
