//! Counts how often each row is used: exactly, from a sample, or in bounded memory.

#[cfg(feature = "sketch")]
mod sketch;
#[cfg(test)]
mod tests;

use crate::{
    error::Error,
    scars::ranked::Ranked,
    table::rng::{Purpose, pcg4d},
};
#[cfg(feature = "sketch")]
use sketch::Sketch;
use std::{collections::HashMap, num::NonZeroU32};

/// The way in which a [`Profile`] counts.
///
/// Example: [`Profile`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// Counts every access. Takes 8 bytes for each row of tables of up to 2^26 rows together, else up to about 40 for each row used.
    Exact,
    /// Counts one access of each run of `one_in`, drawn at random, as `one_in` accesses. In any order, the expected
    /// count of a row is its true count, and the standard error is at most `sqrt(n (one_in - 1))` for a row used n
    /// times ([`Ranked::standard_error`]); that is the standard error of drawing each access with probability 1 /
    /// `one_in`.
    Sampled {
        /// Number of accesses that a counted one stands for.
        one_in: NonZeroU32,
        /// The same seed draws the same accesses.
        seed: u32,
    },
    /// Counts every access, but keeps only the counts of the most used rows. Of n accesses, every row used more than
    /// `n / rows` times is listed. There are fewer than `rows` of these; if accesses are even there may be none, and
    /// then few rows or none are listed ([`Ranked::used`]). Usually far more are. No count is above the true one or
    /// below it by more than [`Ranked::most_below`]; a row that is not listed was used at most that often. That error is
    /// at most `3.5 n / places` (Anderson 2017; from 1024 places on, with near certainty), and much less where accesses
    /// are skewed. The places are a power of two, 4 to 8 for each of `rows`, at most 2^30, and take 18 bytes each.
    /// While at most 3/4 of them are taken, all counts are exact.
    #[cfg(feature = "sketch")]
    Bounded {
        /// If this many rows shared all accesses evenly, each would still be listed. At most 2^28.
        rows: u32,
    },
}

/// Up to so many rows get a count each from the start: 512 MiB of memory, which the system provides where rows are used.
const DENSE: u64 = 1 << 26;

#[derive(Clone, Debug)]
enum Counter {
    Dense(Vec<u64>),
    Map(HashMap<u32, u64>),
    #[cfg(feature = "sketch")]
    Bounded(Sketch),
}

/// Counts accesses to the rows of one or several tables.
///
/// ```
/// # use hotrow::scars::{Counting, Profile};
/// let mut profile = Profile::new(&[100, 50], Counting::Exact);
/// profile.count(0, &[7, 7, 9])?;
/// profile.count(1, &[7, 7, 7])?;
/// let ranked = profile.ranked();
/// assert_eq!(ranked.hottest(2), [107, 7]); // linear rows: the second table's begin at 100
/// assert_eq!(ranked.share_of(1), 0.5);
/// # Ok::<(), hotrow::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Profile {
    /// The first linear row of each table, followed by the end of the last table.
    bases: Vec<u64>,
    counting: Counting,
    counter: Counter,
    /// Number of accesses so far.
    seen: u64,
    /// The access of the current run that is counted.
    drawn: u64,
}

impl Profile {
    /// Makes a profile for tables of these numbers of rows: [`GroupConfig::tables`](crate::GroupConfig::tables), or one
    /// table of all linear rows.
    ///
    /// # Panics
    /// If the tables have more than 2^32 - 2 rows together, which no group has.
    #[must_use]
    pub fn new(tables: &[u32], counting: Counting) -> Self {
        let mut bases = vec![0];
        bases.extend(tables.iter().scan(0, |end, &rows| {
            *end += u64::from(rows);
            Some(*end)
        }));
        let rows = bases[tables.len()];
        assert!(rows < u64::from(u32::MAX), "tables: wanted at most 2^32 - 2 rows, found {rows}");
        let counter = match counting {
            #[cfg(feature = "sketch")]
            Counting::Bounded { rows } => Counter::Bounded(Sketch::new(rows)),
            _ if rows <= DENSE => Counter::Dense(vec![0; rows as usize]),
            _ => Counter::Map(HashMap::new()),
        };
        Self { bases, counting, counter, seen: 0, drawn: drawn(counting, 0) }
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
        let all = self.rows() as u32;
        if let Some((position, row)) = beyond(all, rows) {
            return Err(Error::RowOutOfRange { call: "count_rows", rows: all, position, row });
        }
        self.count_from(0, rows);
        Ok(())
    }

    /// Counts `indices`, which exist, from the linear row `base` on.
    fn count_from(&mut self, base: u64, indices: &[u32]) {
        let linear = |index: u32| (base + u64::from(index)) as u32;
        let Counting::Sampled { one_in, .. } = self.counting else {
            self.seen += indices.len() as u64;
            indices.iter().for_each(|&index| self.counter.add(linear(index), 1));
            return;
        };
        let (each, end) = (u64::from(one_in.get()), self.seen + indices.len() as u64);
        while self.drawn < end {
            // The counted access of this run may have passed. The next run's is drawn when this run is over.
            if self.drawn >= self.seen {
                self.counter.add(linear(indices[(self.drawn - self.seen) as usize]), each);
            }
            let next = (self.drawn / each + 1) * each;
            if next > end {
                break;
            }
            self.drawn = drawn(self.counting, next);
        }
        self.seen = end;
    }

    /// Number of rows of all tables together.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.bases[self.bases.len() - 1]
    }

    /// Number of accesses so far, those included that a sample skipped.
    #[must_use]
    pub const fn accesses(&self) -> u64 {
        self.seen
    }

    /// The ranking over all tables. Sorts the used rows; counting may continue afterwards.
    #[must_use]
    pub fn ranked(&self) -> Ranked {
        self.ranked_between(0, self.rows())
    }

    /// The ranking of one table. Its rows are linear rows too.
    ///
    /// # Panics
    /// If there is no such table.
    #[must_use]
    pub fn ranked_of(&self, table: usize) -> Ranked {
        self.ranked_between(self.bases[table], self.bases[table + 1])
    }

    fn ranked_between(&self, base: u64, end: u64) -> Ranked {
        let mut used = self.counter.used();
        let (kept, named) = (used.iter().map(|&(_, count)| count).sum::<u64>(), used.len() as u64);
        used.retain(|&(row, _)| (base..end).contains(&u64::from(row)));
        let (one_in, most_below) = match (&self.counter, self.counting) {
            #[cfg(feature = "sketch")]
            (Counter::Bounded(sketch), _) => (1, sketch.error()),
            (_, Counting::Sampled { one_in, .. }) => (one_in.get(), 0),
            _ => (1, 0),
        };
        // A sketch cannot tell to which table the dropped accesses belong, so they are shared out among the rows it
        // does not list.
        let dropped = if most_below > 0 { self.seen - kept } else { 0 };
        let (unnamed, all) = (end - base - used.len() as u64, self.rows() - named);
        let dropped = if all == 0 { 0 } else { (u128::from(dropped) * u128::from(unnamed) / u128::from(all)) as u64 };
        Ranked { rows: end - base, used, dropped, one_in, most_below }.sorted()
    }
}

/// The first index that is not below `rows`, and its position.
fn beyond(rows: u32, indices: &[u32]) -> Option<(u32, u32)> {
    (0..).zip(indices.iter().copied()).find(|&(_, index)| index >= rows)
}

/// The access that is counted in the run that begins at `first`.
fn drawn(counting: Counting, first: u64) -> u64 {
    let Counting::Sampled { one_in, seed } = counting else { return first };
    let [word, ..] = pcg4d([seed, first as u32, (first >> 32) as u32, (Purpose::Profile as u32) << 24]);
    first + ((u64::from(word) * u64::from(one_in.get())) >> 32)
}

impl Counter {
    #[inline]
    fn add(&mut self, row: u32, times: u64) {
        match self {
            Self::Dense(counts) => counts[row as usize] += times,
            Self::Map(counts) => *counts.entry(row).or_default() += times,
            #[cfg(feature = "sketch")]
            Self::Bounded(sketch) => sketch.add(row, times),
        }
    }

    fn used(&self) -> Vec<(u32, u64)> {
        match self {
            Self::Dense(counts) => (0..).zip(counts).filter(|&(_, &n)| n > 0).map(|(row, &n)| (row, n)).collect(),
            Self::Map(counts) => counts.iter().map(|(&row, &count)| (row, count)).collect(),
            #[cfg(feature = "sketch")]
            Self::Bounded(sketch) => sketch.used(),
        }
    }
}
