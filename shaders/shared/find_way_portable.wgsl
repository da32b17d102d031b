// Which of a row's 32 lanes matched, through shared memory: any subgroup width.
struct Lane { @builtin(local_invocation_index) index: u32 }

fn lane_row(lane: Lane) -> u32 { return lane.index / 32u; }
fn lane_way(lane: Lane) -> u32 { return lane.index & 31u; }

var<workgroup> found_way: array<u32, 8>;

fn find_way(matches: bool, lane: Lane) -> u32 {
    if (lane_way(lane) == 0u) { found_way[lane_row(lane)] = NONE; }
    workgroupBarrier();
    if (matches) { found_way[lane_row(lane)] = lane_way(lane); } // tags are distinct: one writer
    workgroupBarrier();
    return found_way[lane_row(lane)];
}
