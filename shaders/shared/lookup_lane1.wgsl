// Looks up rows, one invocation for each: it reads all 32 tags of its set, 16 bytes at a time. For drivers that run on a
// CPU.
#include "shared/lane_portable.wgsl"

@group(0) @binding(3) var<storage, read> ways: array<vec4<u32>>; // 32 vec4 for each set, the first 8 of them tags

#include "shared/tags.wgsl"

// The place of `row` in set `home`, NONE if it is not there or `row` is NONE.
fn look_up(row: u32, home: u32, lane: Lane) -> u32 {
    if (row == NONE) { return NONE; }
    return slot_among(row, home);
}
