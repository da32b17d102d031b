// Writes records by Quads, for rows of a dim that is a multiple of 4: each field of a record begins at a word, and a lane writes whole
// words, those of a Quad or, of codes, of up to four Quads.
// Needs all that shared/pack.wgsl needs.

fn paired(halves: vec4<u32>) -> vec2<u32> {
    return vec2<u32>(halves.x | (halves.y << 16u), halves.z | (halves.w << 16u));
}

// The elements e to e + 3 of `row` in FP16; purpose 0 for weights, 1 for state.
fn halves_of(v: vec4<f32>, row: u32, e: u32, purpose: u32) -> vec2<u32> {
    let bits = bitcast<vec4<u32>>(v);
    let at_random = params.stochastic != 0u;
    var random = vec4<u32>(0u);
    if (at_random) { random = noise4(pack_step, row, e, purpose); }
    return paired(vec4<u32>(half_from_bits(bits.x, at_random, random.x), half_from_bits(bits.y, at_random, random.y),
        half_from_bits(bits.z, at_random, random.z), half_from_bits(bits.w, at_random, random.w)));
}

// The floats e to e + 3 of the state in 16 bits.
fn state_halves_of(v: vec4<f32>, row: u32, e: u32) -> vec2<u32> {
    let facts = facts_at(params.facts, e, params.dim);
    if ((facts & STATE_MOMENT) == 0u) { return halves_of(v, row, e, 1u); }
    let bits = bitcast<vec4<u32>>(v);
    let has_sign = (facts & STATE_SIGNED) != 0u;
    let random = noise4(pack_step, row, e, 1u);
    return paired(vec4<u32>(moment_from_bits(bits.x, has_sign, random.x), moment_from_bits(bits.y, has_sign, random.y),
        moment_from_bits(bits.z, has_sign, random.z), moment_from_bits(bits.w, has_sign, random.w)));
}

// The word with their codes.
fn state_codes_of(v: vec4<f32>, row: u32, e: u32) -> u32 {
    let bits = bitcast<vec4<u32>>(v);
    let random = noise4(pack_step, row, e, 1u);
    var codes: vec4<u32>;
    if ((facts_at(params.facts, e, params.dim) & STATE_SIGNED) != 0u) {
        let base = pack_bases >> 16u;
        codes = vec4<u32>(signed_code(bits.x, base, random.x), signed_code(bits.y, base, random.y),
            signed_code(bits.z, base, random.z), signed_code(bits.w, base, random.w));
    } else {
        let base = pack_bases & 0xffffu;
        codes = vec4<u32>(unsigned_code(bits.x, base, random.x), unsigned_code(bits.y, base, random.y),
            unsigned_code(bits.z, base, random.z), unsigned_code(bits.w, base, random.w));
    }
    return codes.x | (codes.y << 8u) | (codes.z << 16u) | (codes.w << 24u);
}

// Writes the record of the FP32 row at `place`, together with the other invocations that pack it.
fn write_record(record: Record, place: u32, row: u32, part: u32, scale: f32, bias: f32) {
    let first = params.state_word + params.scalars + select(0u, 1u, params.state_bits == 8u); // word of the state of elements
    for (var w = part; w < first; w += params.lanes) {
        var word = pack_bases;
        if (w < params.state_word) {
            word = head_word(place, w, scale, bias);
        } else if (w < params.state_word + params.scalars) {
            let k = w - params.state_word;
            word = bitcast<u32>(part_of(load_quad(place, scalars_at() + k / 4u), k % 4u));
        }
        put_word(record, w, word);
    }
    for (var e = 4u * part; e < params.state - params.scalars; e += 4u * params.lanes) {
        let v = load_quad(place, weight_quads() + e / 4u);
        if (params.state_bits == 32u) {
            put_four(record, first + e, bitcast<vec4<u32>>(v));
        } else if (params.state_bits == 16u) {
            put_two(record, first + e / 2u, state_halves_of(v, row, e));
        } else {
            put_word(record, first + e / 4u, state_codes_of(v, row, e));
        }
    }
    let payload = params.payload_half / 2u;
    if (params.bits < 16u) {
        for (var w = payload + part; w < params.record_words; w += params.lanes) {
            put_word(record, w, word_of_codes(place, row, w, scale, bias));
        }
        return;
    }
    for (var e = 4u * part; e < params.dim; e += 4u * params.lanes) {
        let v = load_quad(place, e / 4u);
        if (params.bits == 32u) {
            put_four(record, payload + e, bitcast<vec4<u32>>(v));
        } else {
            put_two(record, payload + e / 2u, halves_of(v, row, e, 0u));
        }
    }
}
