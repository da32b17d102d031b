// The 256 invocations of a workgroup as 8 subgroups of 32 or 4 of 64.
struct Lane {
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) invocation: u32,
    @builtin(subgroup_size) size: u32, // 32 or 64
}

fn subgroup_lanes(lane: Lane) -> u32 { return lane.size; }

fn lane_index(lane: Lane) -> u32 { return lane.subgroup * lane.size + lane.invocation; }
