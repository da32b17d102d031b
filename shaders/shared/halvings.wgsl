// Needs `tables: array<atomic<u32>>`.

// How often the counters of a table's rows, or of all rows, are halved before this step: once for every 32 accesses a slot since
// the last time. Counts this step's accesses, where the caller knows them. The sum is below 2^37, so that its multiples of
// 32 fit in a word.
fn halvings_of(table: u32, slots: u32, accesses: u32) -> u32 {
    let at = CLOCK_WORDS + table * TABLE_WORDS + SINCE;
    let low = atomicLoad(&tables[at]);
    let turns = (low >> 5u) | (atomicLoad(&tables[at + 1u]) << 27u);
    let left = turns % slots;
    let rest = (left << 5u) | (low & 31u);
    let sum = rest + accesses;
    atomicStore(&tables[at], sum);
    atomicStore(&tables[at + 1u], (left >> 27u) + select(0u, 1u, sum < rest));
    return min(turns / slots, 4u);
}
