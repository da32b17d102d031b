// The 256 invocations of a workgroup, for subgroups of any size.
struct Lane { @builtin(local_invocation_index) index: u32 }

fn lane_index(lane: Lane) -> u32 { return lane.index; }
