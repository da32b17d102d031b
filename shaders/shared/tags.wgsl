// Tags of a set in parts of four. Needs `ways: array<vec4<u32>>`.

// Tags 4 * part to 4 * part + 3 of a set.
fn tags(home: u32, part: u32) -> vec4<u32> {
    return ways[home * 32u + part];
}

// The slot of `row` in set `home`, found by one invocation; NONE if it is not there. `row` must not be NONE, the tag of an
// empty way.
fn slot_among(row: u32, home: u32) -> u32 {
    let found = matches(tags(home, 0u), row) | (matches(tags(home, 1u), row) << 4u)
        | (matches(tags(home, 2u), row) << 8u) | (matches(tags(home, 3u), row) << 12u)
        | (matches(tags(home, 4u), row) << 16u) | (matches(tags(home, 5u), row) << 20u)
        | (matches(tags(home, 6u), row) << 24u) | (matches(tags(home, 7u), row) << 28u);
    return select(NONE, home * 32u + firstTrailingBit(found), found != 0u);
}

// Bit k: component k of the vec4 is the row.
fn matches(quad: vec4<u32>, row: u32) -> u32 {
    let bits = select(vec4<u32>(0u), vec4<u32>(1u, 2u, 4u, 8u), quad == vec4<u32>(row));
    return bits.x | bits.y | bits.z | bits.w;
}
