// The 256 invocations of a workgroup as 8 subgroups of exactly 32.
struct Lane {
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) invocation: u32,
}

fn subgroup_lanes(lane: Lane) -> u32 { return 32u; }

fn lane_index(lane: Lane) -> u32 { return lane.subgroup * 32u + lane.invocation; }
