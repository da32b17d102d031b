//! Counts of the most used rows in bounded memory.
//!
//! The frequent items of the `datasketches` crate: Misra & Gries 1982 as Anderson et al. 2017, "A High-Performance Algorithm for
//! Identifying Frequent Items in Data Streams", made it fast. When its map is full, it takes a median of the counts off all of them and drops those that
//! reach nothing; what was taken off so far bounds every count's error.

use datasketches::frequencies::{ErrorType::NoFalseNegatives, FrequentItemsSketch};

/// A bounded number of counters.
#[derive(Clone, Debug)]
pub(crate) struct Sketch(FrequentItemsSketch<u32>);

impl Sketch {
    /// So many places, at 18 bytes each, that of n accesses no count is further than `n / rows` below the truth: the error is at most
    /// `3.5 n / places`.
    pub(crate) fn new(rows: u32) -> Self {
        let places = (u64::from(rows) * 4).next_power_of_two().clamp(8, 1 << 30);
        Self(FrequentItemsSketch::new(places as usize).expect("a power of two between the two it names"))
    }

    pub(crate) fn add(&mut self, row: u32, times: u64) {
        self.0.update_with_count(row, times);
    }

    /// How far below the truth a count can be. Rows that were dropped were used no more often than that.
    pub(crate) fn error(&self) -> u64 {
        self.0.maximum_error()
    }

    /// The rows kept, in no order, each with a count that is never above the truth.
    pub(crate) fn used(&self) -> Vec<(u32, u64)> {
        // Those that may be above the error: every row it keeps.
        let kept = self.0.frequent_items(NoFalseNegatives);
        kept.iter().map(|row| (*row.item(), row.lower_bound())).collect()
    }
}
