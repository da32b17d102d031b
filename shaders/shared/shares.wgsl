#include "shared/sets.wgsl"

// The sets of each table. Needs `shares: array<Share>`, which is read only where `params.shares` is not 0.

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

// The sets of the table that has a row.
fn share_with(row: u32) -> Share {
    if (params.shares == 0u) { return whole(); }
    return shares[share_of(row)];
}

fn home_of(row: u32) -> u32 { return home_in(share_with(row), row); }

fn key_of(row: u32) -> u32 { return key_in(share_with(row), row); }
