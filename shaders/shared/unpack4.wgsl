// Reads a row from the packed records (SPEC 2), four floats at a time. Needs `params`, shared/record_items{item}.wgsl,
// shared/half.wgsl, formats/{format}.wgsl.
//
// A record has the heads, which are scale and bias of each block of codes, then the optimiser state, then the payload; its stride is rounded up to 4
// bytes. If dim is a multiple of 4, every field begins at a word, and four codes lie in one word.

fn four_halves(words: vec2<u32>) -> Quad {
    return vec4<f32>(f32_from_half(words.x & 0xffffu), f32_from_half(words.x >> 16u),
        f32_from_half(words.y & 0xffffu), f32_from_half(words.y >> 16u));
}

fn record_weights(record: Record, q: u32) -> Quad {
    let payload = params.payload_half / 2u;
    if (params.bits == 32u) { return bitcast<vec4<f32>>(four_words(record, payload + 4u * q)); }
    if (params.bits == 16u) { return four_halves(two_words(record, payload + 2u * q)); }
    let bit = 4u * q * params.bits;
    let codes = (vec4<u32>(word_of(record, payload + bit / 32u) >> (bit & 31u)) >>
        ((vec4<u32>(0u, 1u, 2u, 3u) * params.bits) & vec4<u32>(31u))) & vec4<u32>((1u << (params.bits & 31u)) - 1u);
    let scale_bias = head_of(record, 4u * q);
    return settled(vec4<f32>(codes) * scale_bias.x) + scale_bias.y;
}

fn record_state(record: Record, q: u32) -> Quad {
    if (4u * q >= params.state - params.scalars) {
        var scalars = quad_of(bitcast<f32>(word_of(record, params.state_word)));
        if (params.scalars == 2u) { scalars.y = bitcast<f32>(word_of(record, params.state_word + 1u)); }
        return scalars;
    }
    let at = params.state_word + params.scalars;
    if (params.state_bits == 32u) { return bitcast<vec4<f32>>(four_words(record, at + 4u * q)); }
    let facts = facts_at(params.facts, 4u * q, params.dim);
    if (params.state_bits == 8u) {
        let is_signed = (facts & STATE_SIGNED) != 0u;
        let base = (word_of(record, at) >> select(0u, 16u, is_signed)) & 0xffffu;
        let codes = word_of(record, at + 1u + q);
        return bitcast<vec4<f32>>(vec4<u32>(value_of_code(codes & 0xffu, base, is_signed),
            value_of_code((codes >> 8u) & 0xffu, base, is_signed), value_of_code((codes >> 16u) & 0xffu, base, is_signed),
            value_of_code(codes >> 24u, base, is_signed)));
    }
    let words = two_words(record, at + 2u * q);
    return vec4<f32>(f32_from_state(words.x & 0xffffu, facts), f32_from_state(words.x >> 16u, facts),
        f32_from_state(words.y & 0xffffu, facts), f32_from_state(words.y >> 16u, facts));
}
