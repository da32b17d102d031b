// Writes records float by float, for rows of any dim. Needs all that shared/pack.wgsl needs.

// Float e of the row, weights first, then state. Weights need no padding, so the state's Quads follow directly.
fn element_of(place: u32, e: u32) -> f32 {
    return part_of(load_quad(place, e / WIDTH), e % WIDTH);
}

// Half h of the record, counted behind its FP32 words: FP16 state, or payload.
fn packed_half(place: u32, row: u32, h: u32, scale: f32, bias: f32) -> u32 {
    if (h < params.payload_half) {
        let e = h - 2u * (params.state_word + params.scalars);
        if (params.state_bits == 8u) { return packed_code(place, row, 2u * e - 4u) | (packed_code(place, row, 2u * e - 3u) << 8u); }
        return state_half_of(element_of(place, params.dim + e), row, e, facts_at(params.facts, e, params.dim));
    }
    if (params.bits < 16u) { return half_of_codes(place, row, h, scale, bias); }
    let first = h - params.payload_half;
    if (first >= params.dim) { return 0u; }
    return half_of(element_of(place, first), row, first, 0u);
}

// The code of state e, behind the word of scales; 0 for the byte behind an odd number of codes.
fn packed_code(place: u32, row: u32, e: u32) -> u32 {
    if (e >= params.state - params.scalars) { return 0u; }
    let bits = bitcast<u32>(element_of(place, params.dim + e));
    let random = noise(pack_step, row, e, 1u);
    let is_signed = (facts_at(params.facts, e, params.dim) & STATE_SIGNED) != 0u;
    if (is_signed) { return signed_code(bits, pack_bases >> 16u, random); }
    return unsigned_code(bits, pack_bases & 0xffffu, random);
}

// Word w of the record, one of those before the first half: of a head, or FP32 state.
fn float_word(place: u32, w: u32, scale: f32, bias: f32) -> u32 {
    if (w < params.state_word) { return head_word(place, w, scale, bias); }
    // The scalars come first in a record and last in a row.
    let e = w - params.state_word;
    let begin = select(params.dim, params.dim + params.state, e < params.scalars);
    return bitcast<u32>(element_of(place, begin + e - params.scalars));
}

// Word w of the record.
fn packed_word(place: u32, row: u32, w: u32, scale: f32, bias: f32) -> u32 {
    if (params.state_bits == 8u && w == params.state_word + params.scalars) { return pack_bases; }
    if (w < params.state_word + params.scalars || (params.state_bits == 32u && w < params.state_word + params.state)) {
        return float_word(place, w, scale, bias);
    }
    if (params.bits == 32u) { return bitcast<u32>(element_of(place, w - params.payload_half / 2u)); }
    return packed_half(place, row, 2u * w, scale, bias) | (packed_half(place, row, 2u * w + 1u, scale, bias) << 16u);
}

// Writes the record of the FP32 row at `place`, together with the other invocations that pack it.
fn write_record(record: Record, place: u32, row: u32, part: u32, scale: f32, bias: f32) {
    // Scale, bias and FP32 state by themselves: a record's other words often are as many as the lanes, and together with
    // these few they would take the lanes one trip more.
    let payload = params.payload_half / 2u;
    let begin = select(payload, 0u, params.state_bits < 32u);
    for (var w = part; w < begin; w += params.lanes) { put_word(record, w, float_word(place, w, scale, bias)); }
    // A hash serves at least four elements, and a word has two halves, so a lane takes two words, from the start of the
    // payload on.
    let run = select(1u, 2u, params.bits == 16u);
    let skew = (payload - begin) & (run - 1u);
    for (var first = part * run; begin + first < params.record_words + skew; first += params.lanes * run) {
        for (var i = 0u; i < run; i++) {
            let w = begin + first + i - skew;
            if (w < params.record_words) { put_word(record, w, packed_word(place, row, w, scale, bias)); }
        }
    }
}
