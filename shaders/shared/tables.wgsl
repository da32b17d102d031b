// Counts for tables. Needs `tables: array<atomic<u32>>` and `params`. A counter has 64 bits: low word, high word.

fn table_base(table: u32) -> u32 {
    return atomicLoad(&tables[CLOCK_WORDS + table * TABLE_WORDS]);
}

fn table_of(row: u32) -> u32 {
    return table_between(row, 0u, params.tables);
}

// The table of a row, among the tables from `first` to `end` - 1.
fn table_between(row: u32, first: u32, end: u32) -> u32 {
    var low = first;
    var high = end;
    while (high - low > 1u) {
        let middle = (low + high) / 2u;
        if (table_base(middle) <= row) { low = middle; } else { high = middle; }
    }
    return low;
}

fn count(table: u32, counter: u32, amount: u32) {
    if (amount == 0u) { return; }
    let at = CLOCK_WORDS + table * TABLE_WORDS + 2u + 2u * counter;
    let before = atomicAdd(&tables[at], amount);
    if (before + amount < before) { atomicAdd(&tables[at + 1u], 1u); }
}
