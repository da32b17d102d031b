// The parts of a ranking by ballot that do not depend on the size of a subgroup. Needs `block_words` of scatter.
//
// Each subgroup ranks its own share of the block, a run of neighbours, a key a lane and round, without barriers between
// rounds. Eight ballots give a lane the mask of its peers, the lanes with the same digit. The lowest peer adds their
// number to the subgroup's counter of that digit and sends the counter's old value to the others. The other lanes add 0
// to counters of their own: without a branch the lanes of a subgroup stay together from one subgroup operation to the
// next. The counter of digit d lies at subgroup * 256 + d.

fn rank_at(round: u32, lane: Lane) -> u32 {
    return lane.subgroup * (subgroup_lanes(lane) * SORT_ROUNDS) + round * subgroup_lanes(lane) + lane.invocation;
}

fn rank_clear(lane: Lane) {
    for (var row = 0u; row < 8u; row++) { atomicStore(&block_words[row * 256u + lane_index(lane)], 0u); }
    workgroupBarrier();
}

// After the last round: the number of keys in the block with the digit `lane_index(lane)`. Writes to each subgroup's
// counter the number of keys in the subgroups before it.
fn rank_count(lane: Lane) -> u32 {
    var sum = 0u;
    for (var row = 0u; row < 256u / subgroup_lanes(lane); row++) {
        let at = row * 256u + lane_index(lane);
        let held = atomicLoad(&block_words[at]);
        atomicStore(&block_words[at], sum);
        sum += held;
    }
    return sum;
}

// Number of earlier keys with this digit that the ranks of this invocation do not count.
fn rank_base(digit: u32, lane: Lane) -> u32 { return atomicLoad(&block_words[lane.subgroup * 256u + digit]); }
