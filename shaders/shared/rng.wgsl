#include "shared/whole_row.wgsl"

// pcg4d (Jarzynski & Olano 2020). Known answers are in src/table/rng.rs.
fn pcg4d(x: vec4<u32>) -> vec4<u32> {
    var v = x * 1664525u + 1013904223u;
    v.x += v.y * v.w;
    v.y += v.z * v.x;
    v.z += v.x * v.y;
    v.w += v.y * v.z;
    v ^= v >> vec4<u32>(16u);
    v.x += v.y * v.w;
    v.y += v.z * v.x;
    v.z += v.x * v.y;
    v.w += v.y * v.z;
    return v;
}

// The rounding noise of an element: its random bits r as (r + 1/2) * 2^-random_bits, in units of 2^-32. One hash serves
// several elements; src/table/rng.rs defines which bits each takes. Needs `params`.
var<private> noise_counter: u32; // counter of the hash that is held
var<private> noise_words: vec4<u32>;

// Discards the held hash: the next row, or the next step, needs another one.
fn noise_begins() {
    noise_counter = 0xffffffffu; // larger than the counter of any purpose
}

// Makes the hash of an element the held one; returns the element's number among those that it serves.
fn noise_part(step: u32, row: u32, element: u32, purpose: u32) -> u32 {
    let part = element & ((32u >> (params.random_bits / 8u)) - 1u); // 4, 8 or 16 elements for each hash
    let counter = element - part + ((params.purpose + purpose) << 24u);
    if (counter != noise_counter) {
        noise_counter = counter;
        let words = pcg4d(vec4<u32>(params.seed, step, whole_row(row), counter));
        noise_words = words ^ (words >> vec4<u32>(16u));
    }
    return part;
}

fn noise(step: u32, row: u32, element: u32, purpose: u32) -> u32 {
    let width = 4u << (params.random_bits / 8u);
    let at = noise_part(step, row, element, purpose) * width;
    let top = noise_words[at / 32u] << (32u - width - (at & 31u));
    return (top & ~(0xffffffffu >> params.random_bits)) | (0x80000000u >> params.random_bits);
}

// The noise of the elements e to e + 3, which have the same hash; e is a multiple of 4.
fn noise4(step: u32, row: u32, e: u32, purpose: u32) -> vec4<u32> {
    let part = noise_part(step, row, e, purpose);
    var words = noise_words;
    if (params.random_bits == 16u) {
        let two = select(noise_words.xy, noise_words.zw, part == 4u);
        words = vec4<u32>(two.x << 16u, two.x, two.y << 16u, two.y);
    } else if (params.random_bits == 8u) {
        let low = select(noise_words.x, noise_words.y, part == 4u);
        let high = select(noise_words.z, noise_words.w, part == 12u);
        words = vec4<u32>(select(low, high, part >= 8u)) << vec4<u32>(24u, 16u, 8u, 0u);
    }
    return (words & vec4<u32>(~(0xffffffffu >> params.random_bits))) | vec4<u32>(0x80000000u >> params.random_bits);
}
