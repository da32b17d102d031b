//! Rows by how often they are used, and how skewed that is.

use crate::{error::Error, scars::skew::Skew};
use std::num::NonZeroU32;

/// Most ranks the exponent is fitted over.
const FITTED: usize = 1000;

/// How right the counts of a profile are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accuracy {
    /// They are the true ones.
    Exact,
    /// Each is this number times that of a sample: right on average, see [`Ranked::standard_error`].
    Sampled(NonZeroU32),
    /// None is above the truth, nor further below it than this; a row that is not listed was used no more often than this.
    Below(u64),
}

/// Rows that were used, most used first, rows of equal counts by number.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked {
    rows: u64,
    /// Linear row, count.
    used: Vec<(u32, u64)>,
    /// Accesses to rows not listed.
    dropped: u64,
    accuracy: Accuracy,
    accesses: u64,
}

/// How skewed accesses are: the columns of a skew table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SkewTable {
    /// Accesses counted.
    pub accesses: u64,
    /// Rows used at all; of bounded counts, rows listed.
    pub distinct: u64,
    /// Shares of the accesses, 0 to 1, of the 1, 5 and 10 % of the distinct rows that are used most, rounded up.
    pub top: [f64; 3],
    /// Share of the distinct rows that were used once. Only exact counts know.
    pub once: Option<f64>,
    /// s of a count ~ rank^-s, by least squares of log count over log rank, over the first 1000 ranks or a tenth of the distinct rows,
    /// whichever is less. None of fewer than two.
    pub exponent: Option<f64>,
}

impl Ranked {
    pub(crate) fn new(rows: u64, mut used: Vec<(u32, u64)>, dropped: u64, accuracy: Accuracy) -> Self {
        used.sort_unstable_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        let accesses = used.iter().map(|&(_, count)| count).sum::<u64>() + dropped;
        Self { rows, used, dropped, accuracy, accesses }
    }

    /// Rows of the table, or tables, used or not.
    #[must_use]
    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// Accesses, all counts added up: of a sample, an estimate.
    #[must_use]
    pub const fn accesses(&self) -> u64 {
        self.accesses
    }

    /// How right the counts are.
    #[must_use]
    pub const fn accuracy(&self) -> Accuracy {
        self.accuracy
    }

    /// Linear rows that were used, each with its count, in order.
    #[must_use]
    pub fn used(&self) -> &[(u32, u64)] {
        &self.used
    }

    /// The `rows` most used linear rows, in order; fewer if fewer were used or, of bounded counts, listed.
    #[must_use]
    pub fn hottest(&self, rows: usize) -> Vec<u32> {
        self.used.iter().take(rows).map(|&(row, _)| row).collect()
    }

    /// The share of the accesses, 0 to 1, that goes to the `rows` most used rows: the hit rate if they are pinned.
    #[must_use]
    pub fn share_of(&self, rows: usize) -> f64 {
        let taken: u64 = self.used.iter().take(rows).map(|&(_, count)| count).sum();
        taken as f64 / self.accesses.max(1) as f64
    }

    /// The fewest rows, hottest first, that carry `share` of the accesses, 0 to 1; all that are listed if they do not.
    #[must_use]
    pub fn rows_for(&self, share: f64) -> usize {
        // Counts below 2^53 are exact in f64, and so are their sums.
        let wanted = share * self.accesses as f64;
        let mut carried = 0;
        self.used
            .iter()
            .position(|&(_, count)| {
                let enough = carried as f64 >= wanted;
                carried += count;
                enough
            })
            .unwrap_or(self.used.len())
    }

    /// Standard error of a count, at most: 0 where counts are exact or bounded instead.
    #[must_use]
    pub fn standard_error(&self, count: u64) -> f64 {
        match self.accuracy {
            Accuracy::Sampled(one_in) => (count as f64 * f64::from(one_in.get() - 1)).sqrt(),
            Accuracy::Exact | Accuracy::Below(_) => 0.0,
        }
    }

    /// How probable each row is, those never used too: what the model takes.
    ///
    /// # Errors
    /// As [`Skew::from_counts`]: of no accesses there is none.
    pub fn skew(&self) -> Result<Skew, Error> {
        Skew::from_bins(self.bins())
    }

    /// [`Ranked::counts`], each with the number of rows that have it: as many pairs as there are listed rows, at most, and two.
    fn bins(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let (unlisted, each, more) = self.unlisted();
        let listed = self.used.chunk_by(|a, b| a.1 == b.1).map(|alike| (alike[0].1, alike.len() as u64));
        listed.chain([(each + 1, more), (each, unlisted - more)])
    }

    /// How many rows are not listed, the accesses that each of them has, and how many of them have one more.
    fn unlisted(&self) -> (u64, u64, u64) {
        let unlisted = self.rows - self.used.len() as u64;
        (unlisted, self.dropped / unlisted.max(1), self.dropped % unlisted.max(1))
    }

    /// A count for each row, the listed ones first, rows never used too: as many as the table has rows ([`Ranked::skew`] takes no such
    /// time). What bounded counts dropped is shared out evenly among the rows not listed.
    pub fn counts(&self) -> impl Iterator<Item = u64> + '_ {
        let (unlisted, each, more) = self.unlisted();
        let listed = self.used.iter().map(|&(_, count)| count);
        listed.chain((0..unlisted).map(move |i| each + u64::from(i < more)))
    }

    /// The skew table's line.
    #[must_use]
    pub fn table(&self) -> SkewTable {
        let distinct = self.used.len();
        let top = [1, 5, 10].map(|percent| self.share_of((distinct * percent).div_ceil(100)));
        let once = || {
            let ones = distinct - self.used.partition_point(|&(_, count)| count > 1);
            ones as f64 / distinct.max(1) as f64
        };
        SkewTable {
            accesses: self.accesses,
            distinct: distinct as u64,
            top,
            once: (self.accuracy == Accuracy::Exact).then(once),
            exponent: self.exponent(),
        }
    }

    fn exponent(&self) -> Option<f64> {
        let ranks = FITTED.min(self.used.len() / 10);
        if ranks < 2 {
            return None;
        }
        let points = (1..=ranks).zip(&self.used).map(|(rank, &(_, count))| ((rank as f64).ln(), (count as f64).ln()));
        let mean = |of: fn((f64, f64)) -> f64| points.clone().map(of).sum::<f64>() / ranks as f64;
        let (x, y) = (mean(|(x, _)| x), mean(|(_, y)| y));
        let (up, across) =
            points.fold((0.0, 0.0), |(up, across), (px, py)| (up + (px - x) * (py - y), across + (px - x) * (px - x)));
        Some(-up / across)
    }
}
