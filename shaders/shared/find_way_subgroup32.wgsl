// Which of a row's 32 lanes matched, by ballot: only where every subgroup has exactly 32 lanes.
struct Lane {
    @builtin(subgroup_id) row: u32,
    @builtin(subgroup_invocation_id) way: u32,
}

fn lane_row(lane: Lane) -> u32 { return lane.row; }
fn lane_way(lane: Lane) -> u32 { return lane.way; }

fn find_way(matches: bool, lane: Lane) -> u32 {
    return firstTrailingBit(subgroupBallot(matches).x); // of 0: all ones, which is NONE
}
