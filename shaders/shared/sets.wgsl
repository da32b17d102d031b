// The sets of rows: all tables share them, or each table has its own (`src/table/shares.rs`).
struct Share {
    first_row: u32,
    first_set: u32,
    sets: u32,       // 0: no set, as in a table without a share, whose rows the cache never holds; `Spread::parts` of a share that covers its rows
    fold: u32,       // `Spread` in src/table/hash.rs: the shift that folds a row's high bits onto its low ones; 31 if each row has a slot;
    multiplier: u32, // the odd multiplier, in the highest bits;
    spare: u32,      // 32 - bits of a key
    first_key: u32,  // the number of keys of the tables before
    halvings: u32,   // how often the step halves the counters of the table's rows (AGES), as due has found
}

// The sets that all tables share, if they do.
fn whole() -> Share {
    return Share(0u, 0u, params.parts, params.fold, params.multiplier, params.spare, 0u, 0u);
}

// Whether each row has a slot.
fn covers(share: Share) -> bool { return share.fold == 31u; }

// Whether the counters of its rows are halved.
fn ages(share: Share) -> bool { return share.sets > 0u && !covers(share); }

// The key of a row in the highest bits.
fn product_in(share: Share, row: u32) -> u32 {
    let local = row - share.first_row;
    return (local ^ (local >> share.fold)) * share.multiplier;
}

// The high word of the product of two words, by their halves.
fn high_word(a: u32, b: u32) -> u32 {
    let low = a & 0xffffu;
    let high = a >> 16u;
    let middle = high * (b & 0xffffu) + ((low * (b & 0xffffu)) >> 16u);
    return high * (b >> 16u) + (middle >> 16u) + ((low * (b >> 16u) + (middle & 0xffffu)) >> 16u);
}

// The set of a row: keys, cut into equal parts. NONE if it has none.
fn home_in(share: Share, row: u32) -> u32 {
    return select(share.first_set + high_word(product_in(share, row), share.sets), NONE, share.sets == 0u);
}

// The sort key of a missing row: distinct for distinct rows, ascending with the set, never NONE.
fn key_in(share: Share, row: u32) -> u32 {
    let product = product_in(share, row);
    return share.first_key + (product >> share.spare) - select(0u, 1u, product > params.gap);
}
