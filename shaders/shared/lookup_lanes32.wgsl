// Looks up rows, 32 lanes for each: the lanes of a subgroup hold the 32 tags of one set, compare them at once and
// ballot. One line of 128 bytes for each row, four lines under way at a time. Only where every subgroup has exactly 32
// lanes.
#include "shared/lane_subgroup32.wgsl"

@group(0) @binding(3) var<storage, read> ways: array<u32>; // 128 words for each set, the first 32 of them tags

#include "shared/meta.wgsl"
#include "shared/tag.wgsl"

fn tag(home: u32, way: u32) -> u32 {
    return tag_of(home * 32u + way);
}

// The place of `row` in set `home`, NONE if it is not there or `row` is NONE. Must be in uniform control flow.
fn look_up(row: u32, home: u32, lane: Lane) -> u32 {
    var votes = 0u;
    for (var k = 0u; k < 32u; k += 4u) {
        let a = tag(subgroupShuffle(home, k), lane.invocation);
        let b = tag(subgroupShuffle(home, k + 1u), lane.invocation);
        let c = tag(subgroupShuffle(home, k + 2u), lane.invocation);
        let d = tag(subgroupShuffle(home, k + 3u), lane.invocation);
        let in_a = subgroupBallot(a == subgroupShuffle(row, k)).x;
        let in_b = subgroupBallot(b == subgroupShuffle(row, k + 1u)).x;
        let in_c = subgroupBallot(c == subgroupShuffle(row, k + 2u)).x;
        let in_d = subgroupBallot(d == subgroupShuffle(row, k + 3u)).x;
        if (lane.invocation == k) { votes = in_a; }
        if (lane.invocation == k + 1u) { votes = in_b; }
        if (lane.invocation == k + 2u) { votes = in_c; }
        if (lane.invocation == k + 3u) { votes = in_d; }
    }
    if (row == NONE || votes == 0u) { return NONE; } // an empty way has the tag NONE
    return home * 32u + firstTrailingBit(votes);
}
