// Looks up rows, eight neighbouring invocations for each: together they read the 32 tags of a set, 16 bytes each, one
// line of 128 bytes. In round k the invocations from 8 g on look up the row of invocation 32 k + g. For subgroups of any
// size.
#include "shared/lane_portable.wgsl"

@group(0) @binding(3) var<storage, read> ways: array<vec4<u32>>; // 32 vec4 for each set, the first 8 of them tags

#include "shared/tags.wgsl"

var<workgroup> asked_rows: array<u32, 256>;
var<workgroup> asked_sets: array<u32, 256>;
var<workgroup> answers: array<u32, 256>;

// A set has a row at most once, so at most one of the eight invocations answers. An empty way has the tag NONE.
fn answer(asker: u32, part: u32, quad: vec4<u32>) {
    let row = asked_rows[asker];
    let found = matches(quad, row);
    if (found != 0u && row != NONE) { answers[asker] = asked_sets[asker] * 32u + part * 4u + firstTrailingBit(found); }
}

// The place of `row` in set `home`, NONE if it is not there or `row` is NONE. Must be in uniform control flow.
fn look_up(row: u32, home: u32, lane: Lane) -> u32 {
    asked_rows[lane.index] = row;
    asked_sets[lane.index] = home;
    answers[lane.index] = NONE;
    workgroupBarrier();
    let part = lane.index & 7u;
    // Four loads are under way at a time.
    for (var asker = lane.index / 8u; asker < 256u; asker += 128u) {
        let a = tags(asked_sets[asker], part);
        let b = tags(asked_sets[asker + 32u], part);
        let c = tags(asked_sets[asker + 64u], part);
        let d = tags(asked_sets[asker + 96u], part);
        answer(asker, part, a);
        answer(asker + 32u, part, b);
        answer(asker + 64u, part, c);
        answer(asker + 96u, part, d);
    }
    workgroupBarrier();
    return answers[lane.index];
}
