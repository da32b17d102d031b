// Reads a row from the packed records (SPEC 2), one float at a time. Needs `params`, shared/record_items{item}.wgsl,
// shared/half.wgsl, formats/{format}.wgsl.
//
// A record has the heads, which are scale and bias of each block of codes, then the optimiser state, then the payload; its stride is rounded up to 4
// bytes. Each field begins at a multiple of 16 bits, so no element straddles a word.

fn encode_half(record: Record, h: u32) -> u32 {
    return (word_of(record, h / 2u) >> (16u * (h & 1u))) & 0xffffu;
}

fn record_weights(record: Record, q: u32) -> Quad {
    if (params.bits == 32u) {
        return bitcast<f32>(word_of(record, params.payload_half / 2u + q));
    }
    if (params.bits == 16u) {
        return f32_from_half(encode_half(record, params.payload_half + q));
    }
    let bit = params.payload_half * 16u + q * params.bits;
    let code = (word_of(record, bit / 32u) >> (bit & 31u)) & ((1u << (params.bits & 31u)) - 1u);
    let scale_bias = head_of(record, q);
    return settled(f32(code) * scale_bias.x) + scale_bias.y;
}

fn record_state(record: Record, q: u32) -> Quad {
    let each = params.state - params.scalars;
    if (q >= each) { return bitcast<f32>(word_of(record, params.state_word + q - each)); }
    let at = params.state_word + params.scalars;
    if (params.state_bits == 32u) { return bitcast<f32>(word_of(record, at + q)); }
    let facts = facts_at(params.facts, q, params.dim);
    if (params.state_bits == 8u) {
        let is_signed = (facts & STATE_SIGNED) != 0u;
        let base = (word_of(record, at) >> select(0u, 16u, is_signed)) & 0xffffu;
        let code = (word_of(record, at + 1u + q / 4u) >> (8u * (q & 3u))) & 0xffu;
        return bitcast<f32>(value_of_code(code, base, is_signed));
    }
    return f32_from_state(encode_half(record, 2u * at + q), facts);
}
