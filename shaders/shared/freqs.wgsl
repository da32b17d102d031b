// The counters of rows, side by side in words of `freqs`. Needs `params`.

// Whether rows have counters.
fn counts_uses() -> bool { return params.freq_bits != 0u; }

// The word of a row's counter, and its first bit there.
fn freq_place(at: u32) -> vec2<u32> {
    let each = 32u / params.freq_bits; // a power of two
    return vec2<u32>(at / each, at % each * params.freq_bits);
}

fn freq_in(word: u32, bit: u32) -> u32 { return (word >> bit) & (0xffffffffu >> (32u - params.freq_bits)); }

// The key by which missing rows are ordered: the counter; with AGES then the count of the batch, which is greater than the
// counter only where that is 15.
fn admission_key(uses: u32, count: u32) -> u32 { return select(uses, uses * 16u + count, (params.policy & AGES) != 0u); }

// The counter in a key; 0 without counters.
fn uses_of_key(key: u32) -> u32 {
    if ((params.policy & AGES) != 0u) { return min(key / 16u, 15u); }
    return select(0u, key, (params.policy & COUNTS) != 0u);
}
