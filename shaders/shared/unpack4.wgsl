// Reads a row from the packed records (SPEC 2), four floats at a time. Needs `records: array<u32>`, `params`,
// shared/half.wgsl.
//
// A record has [scale, bias] for integers, then the optimiser state, then the payload; its stride is rounded up to 4
// bytes. If dim is a multiple of 4, every field begins at a word, and four codes lie in one word.

fn four_floats(at: u32) -> Quad {
    return bitcast<vec4<f32>>(vec4<u32>(records[at], records[at + 1u], records[at + 2u], records[at + 3u]));
}

fn four_halves(at: u32) -> Quad {
    let low = records[at];
    let high = records[at + 1u];
    return vec4<f32>(f32_from_half(low & 0xffffu), f32_from_half(low >> 16u),
        f32_from_half(high & 0xffffu), f32_from_half(high >> 16u));
}

fn record_weights(base: u32, q: u32) -> Quad {
    let payload = base + params.payload_half / 2u;
    if (params.bits == 32u) { return four_floats(payload + 4u * q); }
    if (params.bits == 16u) { return four_halves(payload + 2u * q); }
    let bit = 4u * q * params.bits;
    let codes = (vec4<u32>(records[payload + bit / 32u] >> (bit & 31u)) >> (vec4<u32>(0u, 1u, 2u, 3u) * params.bits)) &
        vec4<u32>((1u << params.bits) - 1u);
    return vec4<f32>(codes) * bitcast<f32>(records[base]) + bitcast<f32>(records[base + 1u]);
}

fn record_state(base: u32, q: u32) -> Quad {
    if (params.state_half == 1u) { return four_halves(base + params.state_word + 2u * q); }
    if (params.state == 1u) { return quad_of(bitcast<f32>(records[base + params.state_word])); }
    return four_floats(base + params.state_word + 4u * q);
}
