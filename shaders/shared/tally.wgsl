// Sums counters in a workgroup before they go to memory. Neighbouring rows mostly belong to the first lane's table;
// other rows are counted in memory directly. Needs shared/tables.wgsl. `tally_begin` and `tally_end` must be in uniform
// control flow.
const TALLIES: u32 = 13u;

var<workgroup> tallies: array<atomic<u32>, 13>;
var<workgroup> tally_table: u32;
var<workgroup> tally_first: u32; // the rows of the first lane's table
var<workgroup> tally_rows: u32;

fn tally_begin(lane: u32, row: u32) {
    if (lane < TALLIES) { atomicStore(&tallies[lane], 0u); }
    if (lane == 0u) {
        tally_table = table_of(row);
        tally_first = table_base(tally_table);
        tally_rows = atomicLoad(&tables[CLOCK_WORDS + tally_table * TABLE_WORDS + 1u]);
    }
    workgroupBarrier();
}

// The table in whose counters a row counts; NONE if it is the first lane's.
fn counted_in(row: u32) -> u32 {
    if (row - tally_first < tally_rows) { return NONE; }
    return table_of(row);
}

fn tally(table: u32, counter: u32, amount: u32) {
    if (table == NONE) {
        atomicAdd(&tallies[counter], amount);
    } else {
        count(table, counter, amount);
    }
}

fn tally_end(lane: u32) {
    workgroupBarrier();
    if (lane < TALLIES) { count(tally_table, lane, atomicLoad(&tallies[lane])); }
}
