//! The counters of each table. Twin of `shaders/shared/tables.wgsl`.

use crate::table::abi::{CLOCK_WORDS, Params, TABLE_WORDS};

/// Positions of the counters, as in `shaders/shared/common.wgsl`.
pub(crate) mod counter {
    pub(crate) const ACCESSES: usize = 0;
    pub(crate) const HITS: usize = 1;
    pub(crate) const UNIQUE: usize = 2;
    pub(crate) const UNIQUE_MISSES: usize = 3;
    pub(crate) const ADMITTED: usize = 4;
    pub(crate) const EVICTIONS: usize = 5;
    pub(crate) const WRITE_BACKS: usize = 6;
    pub(crate) const BYPASS_READS: usize = 7;
    pub(crate) const BYPASS_WRITES: usize = 8;
    pub(crate) const SKIPPED_ROWS: usize = 9;
    pub(crate) const OUT_OF_RANGE: usize = 10;
    pub(crate) const PADDING: usize = 11;
    /// The accesses since the counters of rows were halved, at `SINCE` of the table.
    pub(crate) const SINCE: usize = 12;
}

fn table_base(tables: &[u32], table: u32) -> u32 {
    tables[CLOCK_WORDS + table as usize * TABLE_WORDS]
}

fn table_rows(tables: &[u32], table: u32) -> u32 {
    tables[CLOCK_WORDS + table as usize * TABLE_WORDS + 1]
}

fn table_of(params: &Params, tables: &[u32], row: u32) -> u32 {
    let (mut low, mut high) = (0, params.tables);
    while high - low > 1 {
        let middle = (low + high) / 2;
        if table_base(tables, middle) <= row {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

pub(crate) fn count(tables: &mut [u32], table: u32, counter: usize, amount: u32) {
    let at = CLOCK_WORDS + table as usize * TABLE_WORDS + 2 + 2 * counter;
    let (low, carry) = tables[at].overflowing_add(amount);
    tables[at] = low;
    tables[at + 1] = tables[at + 1].wrapping_add(u32::from(carry));
}

/// Collects the counts of neighbouring rows, which mostly belong to one table, before they are added to it. Twin of
/// `shaders/shared/tally.wgsl`.
#[derive(Default)]
pub(crate) struct Tally {
    table: u32,
    rows: std::ops::Range<u32>,
    counts: [u32; 11],
}

impl Tally {
    pub(crate) fn count(&mut self, params: &Params, tables: &mut [u32], row: u32, counter: usize) {
        if !self.covers(row) {
            self.enter(params, tables, row);
        }
        self.add(counter);
    }

    /// Whether the row is in the table that is counted for.
    pub(crate) fn covers(&self, row: u32) -> bool {
        self.rows.contains(&row)
    }

    /// Adds what was counted to its table, and goes on with the table of `row`.
    pub(crate) fn enter(&mut self, params: &Params, tables: &mut [u32], row: u32) {
        self.end(tables);
        self.table = table_of(params, tables, row);
        let base = table_base(tables, self.table);
        self.rows = base..base + table_rows(tables, self.table);
    }

    /// Counts a row of the table that is counted for.
    pub(crate) fn add(&mut self, counter: usize) {
        self.counts[counter] += 1;
    }

    /// Adds to a counter of the table that is counted for.
    pub(crate) fn add_many(&mut self, counter: usize, amount: u32) {
        self.counts[counter] += amount;
    }

    /// Counts a distinct row that was read from its record and got no slot.
    pub(crate) fn add_missed(&mut self) {
        for counter in [counter::UNIQUE, counter::UNIQUE_MISSES, counter::BYPASS_READS] {
            self.add(counter);
        }
    }

    pub(crate) fn end(&mut self, tables: &mut [u32]) {
        for (counter, amount) in std::mem::take(&mut self.counts).into_iter().enumerate() {
            if amount > 0 {
                count(tables, self.table, counter, amount);
            }
        }
    }
}
