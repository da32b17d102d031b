// Looks up rows, eight neighbouring invocations for each: together they read the 32 tags of a set, 16 bytes each, one
// line of 128 bytes. In round k the invocations from 8 g on look up the row of invocation 32 k + g. For subgroups of any
// size.
#include "shared/lane_portable.wgsl"

@group(0) @binding(3) var<storage, read> ways: array<vec4<u32>>; // 32 vec4 for each set, the first 8 of them tags

#include "shared/tags.wgsl"

var<workgroup> asked_rows: array<u32, 256>;
var<workgroup> asked_sets: array<u32, 256>;
var<workgroup> answers: array<u32, 256>;

// A set has a row at most once, so at most one of the eight invocations answers.
fn answer(asker: u32, home: u32, part: u32, found: u32) {
    if (found != 0u) { answers[asker] = home * 32u + part * 4u + firstTrailingBit(found); }
}

// The place of `row` in set `home`, NONE if it is not there or `row` is NONE. Must be in uniform control flow.
fn look_up(row: u32, home: u32, lane: Lane) -> u32 {
    asked_rows[lane.index] = row;
    asked_sets[lane.index] = home;
    answers[lane.index] = NONE;
    workgroupBarrier();
    let part = lane.index & 7u;
    // Four loads are under way at a time. All four are compared before the first branch: a compiler may move a load into, or behind, the
    // branches before its first use.
    for (var asker = lane.index / 8u; asker < 256u; asker += 128u) {
        let homes = vec4<u32>(asked_sets[asker], asked_sets[asker + 32u], asked_sets[asker + 64u], asked_sets[asker + 96u]);
        let rows = vec4<u32>(asked_rows[asker], asked_rows[asker + 32u], asked_rows[asker + 64u], asked_rows[asker + 96u]);
        let a = tags(homes.x, part);
        let b = tags(homes.y, part);
        let c = tags(homes.z, part);
        let d = tags(homes.w, part);
        // An empty way has the tag NONE.
        let found = select(vec4<u32>(matches(a, rows.x), matches(b, rows.y), matches(c, rows.z), matches(d, rows.w)),
            vec4<u32>(0u), rows == vec4<u32>(NONE));
        answer(asker, homes.x, part, found.x);
        answer(asker + 32u, homes.y, part, found.y);
        answer(asker + 64u, homes.z, part, found.z);
        answer(asker + 96u, homes.w, part, found.w);
    }
    workgroupBarrier();
    return answers[lane.index];
}
