// Ranks a key among the keys of its digit in the block, by ballot; only where every subgroup has 32 or 64 lanes. A mask
// of peers has 64 bits: lanes 0 to 31 in x, the others in y.
#include "shared/rank_subgroups.wgsl"

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
