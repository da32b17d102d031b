// Reads and writes records word by word. src/wgsl.rs replaces a line that begins with `#piece` by branches that choose the
// bound piece, whose number stands for $, and declares the bindings records1, records2 ... Needs all that
// shared/transfer.wgsl and shared/pack.wgsl need.
alias Item = u32;

#include "shared/transfer.wgsl"

fn word_of(record: Record, w: u32) -> u32 {
    let at = record.word + w;
    #piece record.piece: return records$[at];
}

// Words w and w + 1 of a record.
fn two_words(record: Record, w: u32) -> vec2<u32> {
    let at = record.word + w;
    #piece record.piece: return vec2<u32>(records$[at], records$[at + 1u]);
}

// Words w to w + 3 of a record.
fn four_words(record: Record, w: u32) -> vec4<u32> {
    let at = record.word + w;
    #piece record.piece: return vec4<u32>(records$[at], records$[at + 1u], records$[at + 2u], records$[at + 3u]);
}

fn put_word(record: Record, w: u32, word: u32) {
    let at = record.word + w;
    #piece record.piece: records$[at] = word;
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
