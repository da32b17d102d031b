// Reads and writes records of FP32 or FP16 four words at a time, where a record's words are a multiple of four. For shards
// of a table only: a flight is bound word by word. The rest is as in shared/record_items1.wgsl.
alias Item = vec4<u32>;

// There is no flight.
fn departed(step_words: u32, place: u32) -> Record { return Record(0u, 0u); }
fn departure(row: u32, j: u32) -> u32 { return 0u; }
fn arrived(j: u32) -> Record { return Record(0u, 0u); }
fn kept_in_flight(j: u32) -> Record { return Record(0u, 0u); }

// Words w to w + 3 of a record; w is a multiple of 4.
fn four_words(record: Record, w: u32) -> vec4<u32> {
    let at = (record.word + w) / 4u;
    #shard record.shard: return records$[at];
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
    #shard record.shard: records$[at] = words;
}

// Writes the record of the FP32 row at `place`, together with the other invocations that pack it.
fn write_record(record: Record, place: u32, row: u32, part: u32, scale: f32, bias: f32) {
    for (var first = 4u * part; first < params.record_words; first += 4u * params.lanes) {
        var words = vec4<u32>();
        for (var i = 0u; i < 4u; i++) {
            words = vec4<u32>(words.yzw, packed_word(place, row, first + i, scale, bias));
        }
        put_words(record, first, words);
    }
}
