// Ranks a key among the keys of its digit in the block, by ballot; only where every subgroup has 32 or 64 lanes. A mask
// of peers has 64 bits: lanes 0 to 31 in x, the others in y.
#include "shared/rank_subgroups.wgsl"

// The lanes that differ from this lane in bit k of the digit, and lanes that do not exist.
fn differing(digit: u32, k: u32) -> vec2<u32> {
    let own = bitcast<u32>(bitcast<i32>(digit << (31u - k)) >> 31u); // all ones or 0
    return subgroupBallot(own != 0u).xy ^ vec2<u32>(own);
}

fn rank(digit: u32, lane: Lane) -> u32 {
    var others = vec2<u32>(0u, select(0xffffffffu, 0u, lane.size > 32u)); // the lanes that do not exist
    others |= differing(digit, 0u);
    others |= differing(digit, 1u);
    others |= differing(digit, 2u);
    others |= differing(digit, 3u);
    others |= differing(digit, 4u);
    others |= differing(digit, 5u);
    others |= differing(digit, 6u);
    others |= differing(digit, 7u);
    let peers = ~others;
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
