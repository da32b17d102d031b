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

fn put_two(record: Record, w: u32, words: vec2<u32>) {
    let at = record.word + w;
    #piece record.piece: records$[at] = words.x; records$[at + 1u] = words.y;
}

fn put_four(record: Record, w: u32, words: vec4<u32>) {
    let at = record.word + w;
    #piece record.piece: records$[at] = words.x; records$[at + 1u] = words.y; records$[at + 2u] = words.z; records$[at + 3u] = words.w;
}

#include "shared/write{width}.wgsl"
