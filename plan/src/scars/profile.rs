//! Counts how often each row is used: exactly, from a sample, or in bounded memory.

#[cfg(test)]
mod tests;

use crate::{error, scars::skew::Skew};
use datasketches::frequencies::{ErrorType::NoFalseNegatives, FrequentItemsSketch};
use hotrow::{
    Error,
    internals::rng::{Purpose, pcg4d},
};
use std::{collections::HashMap, num::NonZeroU32};

/// Up to so many rows get a count each from the start: 512 MiB of memory, which the system provides where rows are used.
const DENSE: u64 = 1 << 26;

#[derive(Clone, Debug)]
enum Counter {
    Dense(Vec<u64>),
    Map(HashMap<u32, u64>),
    Bounded(FrequentItemsSketch<u32>),
}

/// Counts accesses to the rows of one or several tables.
///
/// ```
/// use hotrow_plan::scars::Profile;
///
/// let mut profile = Profile::exact(&[100, 50]);
/// profile.count(0, &[7, 7, 9])?;
/// profile.count(1, &[7, 7, 7])?;
/// assert_eq!(profile.ranked(), [(107, 3), (7, 2), (9, 1)]); // linear rows: the second table's begin at 100
/// assert_eq!(profile.skew()?.mass(1), 0.5);
/// # Ok::<(), hotrow_plan::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Profile {
    /// The first linear row of each table, followed by the end of the last table.
    bases: Vec<u64>,
    counter: Counter,
    /// Number of accesses that a counted one stands for.
    one_in: NonZeroU32,
    seed: u32,
    /// Number of accesses so far.
    seen: u64,
    /// The access of the current run that is counted.
    drawn: u64,
}

impl Profile {
    /// Counts every access to tables of these numbers of rows: [`GroupConfig::tables`](hotrow::GroupConfig::tables), or one table of all linear rows.
    /// Takes 8 bytes for each row of tables of up to 2^26 rows together, else up to about 40 for each row used.
    ///
    /// # Panics
    /// If the tables have more than 2^32 - 2 rows together, which no group has.
    #[must_use]
    pub fn exact(tables: &[u32]) -> Self {
        Self::sampled(tables, NonZeroU32::MIN, 0)
    }

    /// Counts one access of each run of `one_in`, drawn at random, as `one_in` accesses. The same seed draws the same accesses. In any order, the
    /// expected count of a row is its true count, and the standard error is at most `sqrt(n (one_in - 1))` for a row used n times; that is the
    /// standard error of drawing each access with probability 1 / `one_in`.
    ///
    /// # Panics
    /// As [`Profile::exact`].
    #[must_use]
    pub fn sampled(tables: &[u32], one_in: NonZeroU32, seed: u32) -> Self {
        let bases = bases(tables);
        let rows = bases[tables.len()];
        let counter = if rows <= DENSE { Counter::Dense(vec![0; rows as usize]) } else { Counter::Map(HashMap::new()) };
        Self { bases, counter, one_in, seed, seen: 0, drawn: drawn(one_in, seed, 0) }
    }

    /// Counts every access, but keeps only the counts of the most used rows. Of n accesses, every row used more than `n / rows` times is listed.
    /// There are fewer than `rows` of these; if accesses are even there may be none, and then few rows or none are listed ([`Profile::ranked`]).
    /// Usually far more are. No count is above the true one or below it by more than [`Profile::most_below`]; a row that is not listed was used at
    /// most that often. That error is at most `3.5 n / places` (Anderson 2017; from 1024 places on, with near certainty), and much less where
    /// accesses are skewed. The places are a power of two, 4 to 8 for each of `rows`, at most 2^30, and take 18 bytes each. While at most 3/4 of them
    /// are taken, all counts are exact.
    ///
    /// The algorithm is Misra & Gries 1982 in the fast form of Anderson 2017: when its map is full, it subtracts a median of the counts from all of
    /// them and drops those that reach 0.
    ///
    /// # Panics
    /// As [`Profile::exact`].
    #[must_use]
    pub fn bounded(tables: &[u32], rows: u32) -> Self {
        let places = (u64::from(rows) * 4).next_power_of_two().clamp(8, 1 << 30);
        // The crate takes powers of two from 8 to 2^30.
        let sketch = FrequentItemsSketch::new(places as usize).expect("a power of two from 8 to 2^30");
        let (bases, one_in) = (bases(tables), NonZeroU32::MIN);
        Self { bases, counter: Counter::Bounded(sketch), one_in, seed: 0, seen: 0, drawn: 0 }
    }

    /// Counts accesses to a table, by its own indices.
    ///
    /// # Errors
    /// [`Error::IndexOutOfRange`] names the first index outside the table; this call then counts nothing.
    ///
    /// # Panics
    /// If there is no such table.
    pub fn count(&mut self, table: usize, indices: &[u32]) -> Result<(), Error> {
        let (base, end) = (self.bases[table], self.bases[table + 1]);
        let (table, rows) = (table as u32, (end - base) as u32);
        if let Some((position, value)) = beyond(rows, indices) {
            return Err(Error::IndexOutOfRange { table, rows, position, value });
        }
        self.count_from(base, indices);
        Ok(())
    }

    /// Counts accesses to linear rows, of any table.
    ///
    /// # Errors
    /// [`Error::RowOutOfRange`] names the first row that does not exist; this call then counts nothing.
    pub fn count_rows(&mut self, rows: &[u32]) -> Result<(), Error> {
        let all = self.bases[self.bases.len() - 1] as u32;
        if let Some((position, row)) = beyond(all, rows) {
            return Err(Error::RowOutOfRange { call: "count_rows", rows: all, position, row });
        }
        self.count_from(0, rows);
        Ok(())
    }

    /// Counts `indices`, which exist, from the linear row `base` on.
    fn count_from(&mut self, base: u64, indices: &[u32]) {
        let linear = |index: u32| (base + u64::from(index)) as u32;
        if self.one_in == NonZeroU32::MIN {
            self.seen += indices.len() as u64;
            indices.iter().for_each(|&index| self.counter.add(linear(index), 1));
            return;
        }
        let (each, end) = (u64::from(self.one_in.get()), self.seen + indices.len() as u64);
        while self.drawn < end {
            // The counted access of this run may have passed. The next run's is drawn when this run is over.
            if self.drawn >= self.seen {
                self.counter.add(linear(indices[(self.drawn - self.seen) as usize]), each);
            }
            let next = (self.drawn / each + 1) * each;
            if next > end {
                break;
            }
            self.drawn = drawn(self.one_in, self.seed, next);
        }
        self.seen = end;
    }

    /// The linear rows that were used, each with its count, most used first; rows with equal counts ascend. A sample lists the rows that it met, and
    /// bounded counts those that they keep. Counting may continue afterwards.
    #[must_use]
    pub fn ranked(&self) -> Vec<(u32, u64)> {
        let mut used = self.counter.used();
        used.sort_unstable_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        used
    }

    /// The `rows` most used linear rows, in order; fewer if fewer were used or listed.
    #[must_use]
    pub fn hottest(&self, rows: usize) -> Vec<u32> {
        self.ranked().into_iter().take(rows).map(|(row, _)| row).collect()
    }

    /// The most by which a bounded count may be below the true one; a row that is not listed was used at most this often. 0 where counts are exact or
    /// sampled.
    #[must_use]
    pub fn most_below(&self) -> u64 {
        if let Counter::Bounded(sketch) = &self.counter { sketch.maximum_error() } else { 0 }
    }

    /// The probability of each row, unused rows included: the input of the model. Accesses that bounded counts dropped are shared out evenly among
    /// the rows not listed.
    ///
    /// # Errors
    /// The errors of [`Skew::from_bins`]: no accesses, for example.
    pub fn skew(&self) -> Result<Skew, error::Error> {
        let used = self.counter.used();
        let kept: u64 = used.iter().map(|&(_, count)| count).sum();
        let dropped = if self.one_in == NonZeroU32::MIN { self.seen - kept } else { 0 };
        let unlisted = self.bases[self.bases.len() - 1] - used.len() as u64;
        let (each, more) = (dropped / unlisted.max(1), dropped % unlisted.max(1));
        let listed = used.into_iter().map(|(_, count)| (count, 1));
        Skew::from_bins(listed.chain([(each + 1, more), (each, unlisted - more)]))
    }
}

/// The first linear row of each table, followed by the end of the last.
fn bases(tables: &[u32]) -> Vec<u64> {
    let mut bases = vec![0];
    bases.extend(tables.iter().scan(0, |end, &rows| {
        *end += u64::from(rows);
        Some(*end)
    }));
    let rows = bases[tables.len()];
    assert!(rows < u64::from(u32::MAX), "tables: wanted at most 2^32 - 2 rows, found {rows}");
    bases
}

/// The first index that is not below `rows`, and its position.
fn beyond(rows: u32, indices: &[u32]) -> Option<(u32, u32)> {
    (0..).zip(indices.iter().copied()).find(|&(_, index)| index >= rows)
}

/// The access that is counted in the run that begins at `first`.
fn drawn(one_in: NonZeroU32, seed: u32, first: u64) -> u64 {
    let [word, ..] = pcg4d([seed, first as u32, (first >> 32) as u32, (Purpose::Profile as u32) << 24]);
    first + ((u64::from(word) * u64::from(one_in.get())) >> 32)
}

impl Counter {
    #[inline]
    fn add(&mut self, row: u32, times: u64) {
        match self {
            Self::Dense(counts) => counts[row as usize] += times,
            Self::Map(counts) => *counts.entry(row).or_default() += times,
            Self::Bounded(sketch) => sketch.update_with_count(row, times),
        }
    }

    fn used(&self) -> Vec<(u32, u64)> {
        match self {
            Self::Dense(counts) => (0..).zip(counts).filter(|&(_, &n)| n > 0).map(|(row, &n)| (row, n)).collect(),
            Self::Map(counts) => counts.iter().map(|(&row, &count)| (row, count)).collect(),
            Self::Bounded(sketch) => {
                // `NoFalseNegatives` returns every row that the sketch keeps; no lower bound is above the true count.
                let kept = sketch.frequent_items(NoFalseNegatives);
                kept.iter().map(|row| (*row.item(), row.lower_bound())).collect()
            }
        }
    }
}
