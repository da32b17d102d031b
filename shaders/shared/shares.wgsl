#include "shared/hash.wgsl"

// The share of the cache that a table has (`src/table/shares.rs`). Needs `shares`, which is read only where `params.shares` is
// not 0.
struct Share {
    first_row: u32,
    first_set: u32,
    sets: u32,       // 0: the table has no share, and its rows are in no set
    fold: u32,       // as in `Params`; 31 if the share has a slot for every row
    multiplier: u32,
    spare: u32,
    first_key: u32,  // the number of keys of the tables before
    halvings: u32,   // how often the step halves the counters of the table's rows (WINDOW), as begin has found
}

// The number of the table that has a row.
fn share_of(row: u32) -> u32 {
    var low = 0u;
    var high = params.shares;
    while (high - low > 1u) {
        let middle = (low + high) / 2u;
        if (shares[middle].first_row <= row) { low = middle; } else { high = middle; }
    }
    return low;
}

// Whether the table has a slot for every row.
fn covers(table: u32) -> bool { return shares[table].fold == 31u; }

// Whether the counters of the table's rows are halved.
fn ages(table: u32) -> bool { return shares[table].sets > 0u && !covers(table); }

// The set of a row; NONE if it has none.
fn home_of(row: u32) -> u32 {
    if (params.shares == 0u) { return home_among_all(row); }
    let table = share_of(row);
    if (shares[table].sets == 0u) { return NONE; }
    let local = row - shares[table].first_row;
    if (covers(table)) { return shares[table].first_set + local / 32u; }
    let product = product_of(local, shares[table].fold, shares[table].multiplier);
    return shares[table].first_set + high_word(product, shares[table].sets);
}

// The sort key of a missing row: distinct for distinct rows, ascending with the set, never NONE.
fn key_of(row: u32) -> u32 {
    if (params.shares == 0u) { return key_among_all(row); }
    let table = share_of(row);
    let product = product_of(row - shares[table].first_row, shares[table].fold, shares[table].multiplier);
    return shares[table].first_key + (product >> shares[table].spare);
}
