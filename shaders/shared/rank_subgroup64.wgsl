// Ranks a key among the keys of its digit in the block, by ballot; only where every subgroup has 32 or 64 lanes.
//
// The steps are those of shared/rank_subgroup32.wgsl. A mask of peers has 64 bits: lanes 0 to 31 in x, the others in y.
// The counter of digit d lies at subgroup * 256 + d. Needs `block_words` of scatter.

fn rank_at(round: u32, lane: Lane) -> u32 {
    return lane.subgroup * (lane.size * SORT_ROUNDS) + round * lane.size + lane.invocation;
}

fn rank_clear(lane: Lane) {
    for (var row = 0u; row < 8u; row++) { atomicStore(&block_words[row * 256u + lane_index(lane)], 0u); }
    workgroupBarrier();
}

// The lanes that agree with this lane on a bit, and lanes that do not exist.
fn agreeing(bit: bool) -> vec2<u32> {
    let votes = subgroupBallot(bit).xy;
    return select(~votes, votes, bit);
}

fn rank(digit: u32, lane: Lane) -> u32 {
    var peers = vec2<u32>(0xffffffffu, select(0u, 0xffffffffu, lane.size > 32u)); // the lanes that exist
    peers &= agreeing((digit & 1u) != 0u);
    peers &= agreeing((digit & 2u) != 0u);
    peers &= agreeing((digit & 4u) != 0u);
    peers &= agreeing((digit & 8u) != 0u);
    peers &= agreeing((digit & 16u) != 0u);
    peers &= agreeing((digit & 32u) != 0u);
    peers &= agreeing((digit & 64u) != 0u);
    peers &= agreeing((digit & 128u) != 0u);
    let leader = select(32u + firstTrailingBit(peers.y), firstTrailingBit(peers.x), peers.x != 0u);
    let leads = lane.invocation == leader;
    let all = countOneBits(peers);
    let counter = lane.subgroup * 256u + select(lane.invocation, digit, leads);
    var earlier = atomicAdd(&block_words[counter], select(0u, all.x + all.y, leads));
    // Every lane waits here for its leader, so the next round adds after this one.
    earlier = subgroupShuffle(earlier, leader);
    let below = (1u << (lane.invocation & 31u)) - 1u;
    let upper = lane.invocation >= 32u;
    let lower = countOneBits(peers & vec2<u32>(select(below, 0xffffffffu, upper), select(0u, below, upper)));
    return earlier + lower.x + lower.y;
}

// After the last round: the number of keys in the block with the digit `lane_index(lane)`. Writes to each subgroup's
// counter the number of keys in the subgroups before it.
fn rank_count(lane: Lane) -> u32 {
    var sum = 0u;
    for (var row = 0u; row < 256u / lane.size; row++) {
        let at = row * 256u + lane_index(lane);
        let held = atomicLoad(&block_words[at]);
        atomicStore(&block_words[at], sum);
        sum += held;
    }
    return sum;
}

// Number of earlier keys with this digit that the ranks of this invocation do not count.
fn rank_base(digit: u32, lane: Lane) -> u32 { return atomicLoad(&block_words[lane.subgroup * 256u + digit]); }
