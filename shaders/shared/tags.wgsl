// Tags of a set in parts of four. Needs `ways: array<vec4<u32>>`.

// Tags 4 * part to 4 * part + 3 of a set.
fn tags(home: u32, part: u32) -> vec4<u32> {
    return ways[home * 32u + part];
}

// Bit k: component k of the vec4 is the row.
fn matches(quad: vec4<u32>, row: u32) -> u32 {
    let bits = select(vec4<u32>(0u), vec4<u32>(1u, 2u, 4u, 8u), quad == vec4<u32>(row));
    return bits.x | bits.y | bits.z | bits.w;
}
