// Reads a row from the packed records (SPEC 2), one float at a time. Needs `records: array<u32>`, `params`,
// shared/half.wgsl.
//
// A record has [scale, bias] for integers, then the optimiser state, then the payload; its stride is rounded up to 4
// bytes. Each field begins at a multiple of 16 bits, so no element straddles a word.

fn record_half(base: u32, h: u32) -> u32 {
    return (records[base + h / 2u] >> (16u * (h & 1u))) & 0xffffu;
}

fn record_weights(base: u32, q: u32) -> Quad {
    if (params.bits == 32u) {
        return bitcast<f32>(records[base + params.payload_half / 2u + q]);
    }
    if (params.bits == 16u) {
        return f32_from_half(record_half(base, params.payload_half + q));
    }
    let bit = params.payload_half * 16u + q * params.bits;
    let code = (records[base + bit / 32u] >> (bit & 31u)) & ((1u << params.bits) - 1u);
    return f32(code) * bitcast<f32>(records[base]) + bitcast<f32>(records[base + 1u]);
}

fn record_state(base: u32, q: u32) -> Quad {
    if (params.state_half == 1u) {
        return f32_from_half(record_half(base, 2u * params.state_word + q));
    }
    return bitcast<f32>(records[base + params.state_word + q]);
}
