// Ranks a key among the keys of its digit in the block, by ballot; only where every subgroup has exactly 32 lanes.
#include "shared/rank_subgroups.wgsl"

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
    let counter = lane.subgroup * 256u + select(lane.invocation, digit, leads);
    var earlier = atomicAdd(&block_words[counter], select(0u, countOneBits(peers), leads));
    // Every lane waits here for its leader, so the next round adds after this one.
    earlier = subgroupShuffle(earlier, leader);
    return earlier + countOneBits(peers & ((1u << lane.invocation) - 1u));
}
