// Sums the counts of single rows in a workgroup before they go to memory, for the counters WRITE_BACKS to SKIPPED_ROWS.
// The rows of all tables come mixed, so each table has sums of its own, if there are at most 64 tables; rows of more
// tables are counted in memory directly. Needs `params`, shared/tables.wgsl. `row_counts_begin` and `row_counts_end`
// must be in uniform control flow.
const SUMMED_TABLES: u32 = 64u;
const SUMMED_COUNTERS: u32 = 4u;

var<workgroup> row_counts: array<atomic<u32>, 256>; // the counters of the first table, then those of the second ...
var<workgroup> first_rows: array<u32, 64>; // the base of every table; of more than 64 tables the bases of some

// Number of tables from one base in `first_rows` to the next.
fn tables_apart() -> u32 {
    return (params.tables + SUMMED_TABLES - 1u) / SUMMED_TABLES;
}

fn row_counts_begin(local: u32) {
    atomicStore(&row_counts[local], 0u);
    let table = local * tables_apart();
    if (local < SUMMED_TABLES && table < params.tables) { first_rows[local] = table_base(table); }
    workgroupBarrier();
}

// Counts a row of any table.
fn count_row(row: u32, counter: u32) {
    let apart = tables_apart();
    var low = 0u;
    var high = (params.tables + apart - 1u) / apart;
    while (high - low > 1u) {
        let middle = (low + high) / 2u;
        if (first_rows[middle] <= row) { low = middle; } else { high = middle; }
    }
    if (apart == 1u) {
        atomicAdd(&row_counts[low * SUMMED_COUNTERS + counter - WRITE_BACKS], 1u);
    } else {
        count(table_between(row, low * apart, min((low + 1u) * apart, params.tables)), counter, 1u);
    }
}

fn row_counts_end(local: u32) {
    workgroupBarrier();
    count(local / SUMMED_COUNTERS, WRITE_BACKS + local % SUMMED_COUNTERS, atomicLoad(&row_counts[local]));
}
