//! How often each row is used: counted exactly, out of a sample, or in bounded memory.

mod exact;
#[cfg(feature = "sketch")]
mod sketch;
#[cfg(test)]
mod tests;

use crate::{
    error::Error,
    scars::ranked::{Accuracy, Ranked},
    table::rng::{Purpose, pcg4d},
};
use exact::Exact;
#[cfg(feature = "sketch")]
use sketch::Sketch;
use std::num::NonZeroU32;

/// How a [`Profile`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// Every access. Takes some 10 bytes for each row of the tables at most, once 18 for a moment; less while few are used.
    Exact,
    /// One access of each `one_in` that follow each other, drawn anew each time, and counted `one_in` times. Whatever the order, a row's
    /// expected count is its true one; the standard error is at most `sqrt(n (one_in - 1))` for a row used n times
    /// ([`Ranked::standard_error`]): drawing each access with probability 1 / `one_in` would have exactly that.
    Sampled {
        /// How many accesses one stands for.
        one_in: NonZeroU32,
        /// The same seed draws the same accesses.
        seed: u32,
    },
    /// Every access, but only the counts of the most used rows are kept: of n accesses, every row that was used more than `n / rows` times
    /// is listed. That many there are fewer than `rows`, and of accesses that are even there may be none: then few rows are listed, or none
    /// ([`Ranked::used`]), though most of the time far more. No count is above the truth, and none is further below it than
    /// [`Accuracy::Below`] says; a row that is left out was used no more often than that. It is at most `3.5 n / places` (Anderson et al.
    /// 2017; of more than 1024 places all but surely), and much less where accesses are skewed. The places are a power of two, 4 to 8 for each of
    /// `rows`, at most 2^30, of 18 bytes each; while no more than 3/4 of them are taken, all counts are exact.
    #[cfg(feature = "sketch")]
    Bounded {
        /// Rows that could share all accesses evenly and each be listed still; up to 2^28.
        rows: u32,
    },
}

#[derive(Clone, Debug)]
enum Counter {
    Exact(Exact),
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
/// assert_eq!(ranked.rows_for(0.5), 1);
/// # Ok::<(), hotrow::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Profile {
    /// The first linear row of each table, and the end of the last.
    bases: Vec<u64>,
    counting: Counting,
    counter: Counter,
    /// Accesses so far.
    seen: u64,
    /// Of the stretch that runs: the access to be counted.
    drawn: u64,
}

impl Profile {
    /// For tables of so many rows each: [`GroupConfig::tables`](crate::GroupConfig::tables), or one that holds all linear rows.
    ///
    /// # Panics
    /// If the tables have more than 2^32 - 2 rows together, as no group has.
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
            _ => Counter::Exact(Exact::new(rows)),
        };
        Self { bases, counting, counter, seen: 0, drawn: drawn(counting, 0) }
    }

    /// A profile out of counts that were kept elsewhere: one a linear row, as LFU's [`Part::Frequencies`](crate::Part::Frequencies) are.
    ///
    /// # Errors
    /// [`Error::Length`] unless there is one for each row of the tables.
    ///
    /// # Panics
    /// As [`Profile::new`].
    pub fn of_frequencies(tables: &[u32], frequencies: &[u32]) -> Result<Self, Error> {
        let mut profile = Self::new(tables, Counting::Exact);
        let (wanted, found) = (profile.rows(), frequencies.len() as u64);
        if wanted != found {
            return Err(Error::Length { what: "frequencies", wanted, found });
        }
        for (row, &times) in (0..).zip(frequencies).filter(|&(_, &times)| times > 0) {
            profile.seen += u64::from(times);
            profile.counter.add(row, u64::from(times));
        }
        Ok(profile)
    }

    /// Counts accesses to a table, in its own indices.
    ///
    /// # Errors
    /// [`Error::IndexOutOfRange`] names the first that the table has not; nothing of this call is counted then.
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

    /// Counts accesses to linear rows, of whatever table.
    ///
    /// # Errors
    /// [`Error::RowOutOfRange`] names the first that does not exist; nothing of this call is counted then.
    pub fn count_rows(&mut self, rows: &[u32]) -> Result<(), Error> {
        let all = self.rows() as u32;
        if let Some((position, row)) = beyond(all, rows) {
            return Err(Error::RowOutOfRange { call: "count_rows", rows: all, position, row });
        }
        self.count_from(0, rows);
        Ok(())
    }

    /// Counts indices from the linear row `base` on; they exist.
    fn count_from(&mut self, base: u64, indices: &[u32]) {
        let linear = |index: u32| (base + u64::from(index)) as u32;
        let Counting::Sampled { one_in, .. } = self.counting else {
            self.seen += indices.len() as u64;
            indices.iter().for_each(|&index| self.counter.add(linear(index), 1));
            return;
        };
        let (each, end) = (u64::from(one_in.get()), self.seen + indices.len() as u64);
        while self.drawn < end {
            // A stretch's access may have come before; the next stretch is drawn when this one is over.
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

    /// Rows of all tables together.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.bases[self.bases.len() - 1]
    }

    /// Accesses so far, those too that a sample left out.
    #[must_use]
    pub const fn accesses(&self) -> u64 {
        self.seen
    }

    /// What was found, over all tables. Sorts the rows used; counting may go on afterwards.
    #[must_use]
    pub fn ranked(&self) -> Ranked {
        self.ranked_between(0, self.rows())
    }

    /// What was found of one table. Its rows are linear ones all the same.
    ///
    /// # Panics
    /// If there is no such table.
    #[must_use]
    pub fn ranked_of(&self, table: usize) -> Ranked {
        self.ranked_between(self.bases[table], self.bases[table + 1])
    }

    fn ranked_between(&self, base: u64, end: u64) -> Ranked {
        let accuracy = self.accuracy();
        let mut used = self.counter.used();
        let (kept, named) = (used.iter().map(|&(_, count)| count).sum::<u64>(), used.len() as u64);
        used.retain(|&(row, _)| (base..end).contains(&u64::from(row)));
        // What a sketch dropped is shared out among the rows it does not name. Of which table they were it cannot tell.
        let dropped = match accuracy {
            Accuracy::Below(_) => self.seen - kept,
            _ => 0,
        };
        let (unnamed, all) = (end - base - used.len() as u64, self.rows() - named);
        let dropped = if all == 0 { 0 } else { (u128::from(dropped) * u128::from(unnamed) / u128::from(all)) as u64 };
        Ranked::new(end - base, used, dropped, accuracy)
    }

    /// How right the counts are.
    #[must_use]
    pub fn accuracy(&self) -> Accuracy {
        match (&self.counter, self.counting) {
            #[cfg(feature = "sketch")]
            (Counter::Bounded(sketch), _) if sketch.error() > 0 => Accuracy::Below(sketch.error()),
            (_, Counting::Sampled { one_in, .. }) if one_in.get() > 1 => Accuracy::Sampled(one_in),
            _ => Accuracy::Exact,
        }
    }
}

/// The first index that is not below `rows`, and where.
fn beyond(rows: u32, indices: &[u32]) -> Option<(u32, u32)> {
    (0..).zip(indices.iter().copied()).find(|&(_, index)| index >= rows)
}

/// Which access of the stretch that begins at `first` is counted.
fn drawn(counting: Counting, first: u64) -> u64 {
    let Counting::Sampled { one_in, seed } = counting else { return first };
    let [word, ..] = pcg4d([seed, first as u32, (first >> 32) as u32, (Purpose::Profile as u32) << 24]);
    first + ((u64::from(word) * u64::from(one_in.get())) >> 32)
}

impl Counter {
    #[inline]
    fn add(&mut self, row: u32, times: u64) {
        match self {
            Self::Exact(exact) => exact.add(row, times),
            #[cfg(feature = "sketch")]
            Self::Bounded(sketch) => sketch.add(row, times),
        }
    }

    fn used(&self) -> Vec<(u32, u64)> {
        match self {
            Self::Exact(exact) => exact.used(),
            #[cfg(feature = "sketch")]
            Self::Bounded(sketch) => sketch.used(),
        }
    }
}
