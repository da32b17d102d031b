//! Counts of the most used rows in bounded memory.
//!
//! The algorithm is the frequent-items sketch of the crate `datasketches`: Misra & Gries 1982 in the fast form of
//! Anderson 2017. When its map is full, it subtracts a median of the counts from all of them and drops those that reach
//! 0. The sum of what was subtracted bounds the error of every count.

use datasketches::frequencies::{ErrorType::NoFalseNegatives, FrequentItemsSketch};

/// A bounded number of counters.
#[derive(Clone, Debug)]
pub(crate) struct Sketch(FrequentItemsSketch<u32>);

impl Sketch {
    /// Makes a sketch with enough places, of 18 bytes each, that after n accesses no count is more than `n / rows`
    /// below the true one: the error is at most `3.5 n / places`.
    pub(crate) fn new(rows: u32) -> Self {
        let places = (u64::from(rows) * 4).next_power_of_two().clamp(8, 1 << 30);
        // The crate takes powers of two from 8 to 2^30.
        Self(FrequentItemsSketch::new(places as usize).expect("a power of two from 8 to 2^30"))
    }

    pub(crate) fn add(&mut self, row: u32, times: u64) {
        self.0.update_with_count(row, times);
    }

    /// The most by which a count may be too low. Dropped rows were used at most this often.
    pub(crate) fn error(&self) -> u64 {
        self.0.maximum_error()
    }

    /// The rows kept, in no order, each with a count that is never above the true one.
    pub(crate) fn used(&self) -> Vec<(u32, u64)> {
        // `NoFalseNegatives` returns every row that the sketch keeps.
        let kept = self.0.frequent_items(NoFalseNegatives);
        kept.iter().map(|row| (*row.item(), row.lower_bound())).collect()
    }
}
