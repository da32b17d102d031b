// Ranks a key among the keys of its digit in the block, by ballot; only where every subgroup has exactly 32 lanes.
//
// Each subgroup ranks its own share of the block, a run of neighbours, 32 keys a round, without barriers between
// rounds. Eight ballots give a lane the mask of its peers, the lanes with the same digit. The lowest peer adds their
// number to the subgroup's counter of that digit and sends the counter's old value to the others. The other lanes add 0
// to a counter: without a branch the lanes of a subgroup stay together from one subgroup operation to the next. The
// counter of digit d lies at subgroup * 256 + d. Needs `block_words` of scatter.

fn rank_at(round: u32, lane: Lane) -> u32 {
    return lane.subgroup * (32u * SORT_ROUNDS) + round * 32u + lane.invocation;
}

fn rank_clear(lane: Lane) {
    for (var row = 0u; row < 8u; row++) { atomicStore(&block_words[row * 256u + lane_index(lane)], 0u); }
    workgroupBarrier();
}

// The lanes that agree with this lane on a bit.
fn agreeing(bit: bool) -> u32 {
    let votes = subgroupBallot(bit).x;
    return select(~votes, votes, bit);
}

fn rank(digit: u32, lane: Lane) -> u32 {
    var peers = agreeing((digit & 1u) != 0u);
    peers &= agreeing((digit & 2u) != 0u);
    peers &= agreeing((digit & 4u) != 0u);
    peers &= agreeing((digit & 8u) != 0u);
    peers &= agreeing((digit & 16u) != 0u);
    peers &= agreeing((digit & 32u) != 0u);
    peers &= agreeing((digit & 64u) != 0u);
    peers &= agreeing((digit & 128u) != 0u);
    let leader = firstTrailingBit(peers);
    let leads = lane.invocation == leader;
    // The lanes that add 0 do so at different counters, so they do not wait for each other.
    let counter = lane.subgroup * 256u + select(lane.invocation, digit, leads);
    var earlier = atomicAdd(&block_words[counter], select(0u, countOneBits(peers), leads));
    // Every lane waits here for its leader, so the next round adds after this one.
    earlier = subgroupShuffle(earlier, leader);
    return earlier + countOneBits(peers & ((1u << lane.invocation) - 1u));
}

// After the last round: the number of keys in the block with the digit `lane_index(lane)`. Writes to each subgroup's
// counter the number of keys in the subgroups before it.
fn rank_count(lane: Lane) -> u32 {
    var sum = 0u;
    for (var row = 0u; row < 8u; row++) {
        let at = row * 256u + lane_index(lane);
        let held = atomicLoad(&block_words[at]);
        atomicStore(&block_words[at], sum);
        sum += held;
    }
    return sum;
}

// Number of earlier keys with this digit that the ranks of this invocation do not count.
fn rank_base(digit: u32, lane: Lane) -> u32 { return atomicLoad(&block_words[lane.subgroup * 256u + digit]); }
