// murmur3's 32-bit finaliser. Known answers are in src/table/hash.rs.
fn fmix32(x: u32) -> u32 {
    var h = x;
    h ^= h >> 16u;
    h *= 0x85ebca6bu;
    h ^= h >> 13u;
    h *= 0xc2b2ae35u;
    h ^= h >> 16u;
    return h;
}

// The key of a row in the highest bits (`Spread` in src/table/hash.rs, where the tests are).
fn product_of(row: u32, fold: u32, multiplier: u32) -> u32 { return (row ^ (row >> fold)) * multiplier; }

// The high word of the product of two words, by their halves.
fn high_word(a: u32, b: u32) -> u32 {
    let low = a & 0xffffu;
    let high = a >> 16u;
    let middle = high * (b & 0xffffu) + ((low * (b & 0xffffu)) >> 16u);
    return high * (b >> 16u) + (middle >> 16u) + ((low * (b >> 16u) + (middle & 0xffffu)) >> 16u);
}

// The set of a row, where all tables share them: keys, cut into equal parts; or one set behind another, if the cache has a
// slot for every row.
fn home_among_all(row: u32) -> u32 {
    if (params.direct != 0u) { return row / 32u; }
    return high_word(product_of(row, params.fold, params.multiplier), params.sets);
}

// The sort key of a missing row, where all tables share the sets: distinct for distinct rows, ascending with the set, never NONE.
fn key_among_all(row: u32) -> u32 {
    let product = product_of(row, params.fold, params.multiplier);
    return (product >> params.spare) - select(0u, 1u, product > params.gap);
}
