// Reads and writes records of FP32 or FP16 four words at a time, where a record's words are a multiple of four. For pieces
// of a table only: a transfer is bound word by word. The rest is as in shared/record_items1.wgsl.
alias Item = vec4<u32>;

// There is no transfer.
fn departed(step_words: u32, place: u32) -> Record { return Record(0u, 0u); }
fn departure(row: u32, j: u32) -> u32 { return 0u; }
fn arrived(j: u32) -> Record { return Record(0u, 0u); }
fn kept_in_transfer(j: u32) -> Record { return Record(0u, 0u); }

// Words w to w + 3 of a record; w is a multiple of 4.
fn four_words(record: Record, w: u32) -> vec4<u32> {
    let at = (record.word + w) / 4u;
    #piece record.piece: return records$[at];
}

// Words w and w + 1 of a record; w is even.
fn two_words(record: Record, w: u32) -> vec2<u32> {
    let four = four_words(record, w & ~3u);
    return select(four.xy, four.zw, (w & 2u) != 0u);
}

fn word_of(record: Record, w: u32) -> u32 {
    let two = two_words(record, w & ~1u);
    return select(two.x, two.y, (w & 1u) != 0u);
}

fn put_words(record: Record, w: u32, words: vec4<u32>) {
    let at = (record.word + w) / 4u;
    #piece record.piece: records$[at] = words;
}

// The Quad with floats e to e + 3 of the row, counted as in a record: the state first. e is a multiple of 4. A row with
// scalars has no such record.
fn quad_of_record(place: u32, e: u32) -> Quad {
    if (e < params.state) { return load_quad(place, weight_quads() + e / 4u); }
    return load_quad(place, (e - params.state) / 4u);
}

// These four floats in FP16.
fn four_halves_of(place: u32, row: u32, e: u32) -> vec2<u32> {
    let v = quad_of_record(place, e);
    if (e < params.state) {
        let facts = facts_at(params.facts, e, params.dim);
        return vec2<u32>(state_half_of(v.x, row, e, facts) | (state_half_of(v.y, row, e + 1u, facts) << 16u),
            state_half_of(v.z, row, e + 2u, facts) | (state_half_of(v.w, row, e + 3u, facts) << 16u));
    }
    let first = e - params.state;
    return vec2<u32>(half_of(v.x, row, first, 0u) | (half_of(v.y, row, first + 1u, 0u) << 16u),
        half_of(v.z, row, first + 2u, 0u) | (half_of(v.w, row, first + 3u, 0u) << 16u));
}

// Writes the record of the FP32 row at `place`, together with the other invocations that pack it.
fn write_record(record: Record, place: u32, row: u32, part: u32, scale: f32, bias: f32) {
    for (var w = 4u * part; w < params.record_words; w += 4u * params.lanes) {
        if (params.bits == 32u || (params.state_bits == 32u && w < params.state)) {
            put_words(record, w, bitcast<vec4<u32>>(quad_of_record(place, w)));
        } else {
            let e = 2u * w - select(0u, params.state, params.state_bits == 32u);
            put_words(record, w, vec4<u32>(four_halves_of(place, row, e), four_halves_of(place, row, e + 4u)));
        }
    }
}
