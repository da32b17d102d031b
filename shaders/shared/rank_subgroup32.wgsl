// Ranks a key among the keys of its digit in the block, by ballot; only where every subgroup has exactly 32 lanes.
#include "shared/rank_subgroups.wgsl"

// The lanes that differ from this lane in bit k of the digit.
fn differing(digit: u32, k: u32) -> u32 {
    let own = bitcast<u32>(bitcast<i32>(digit << (31u - k)) >> 31u); // all ones or 0
    return subgroupBallot(own != 0u).x ^ own;
}

fn rank(digit: u32, lane: Lane) -> u32 {
    var others = 0u;
    others |= differing(digit, 0u);
    others |= differing(digit, 1u);
    others |= differing(digit, 2u);
    others |= differing(digit, 3u);
    others |= differing(digit, 4u);
    others |= differing(digit, 5u);
    others |= differing(digit, 6u);
    others |= differing(digit, 7u);
    let peers = ~others;
    let leader = firstTrailingBit(peers);
    let leads = lane.invocation == leader;
    let counter = lane.subgroup * 256u + select(lane.invocation, digit, leads);
    var earlier = atomicAdd(&block_words[counter], select(0u, countOneBits(peers), leads));
    // Every lane waits here for its leader, so the next round adds after this one.
    earlier = subgroupShuffle(earlier, leader);
    return earlier + countOneBits(peers & ((1u << lane.invocation) - 1u));
}
