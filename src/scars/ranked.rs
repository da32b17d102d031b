//! Rows ranked by use, and the skew of that use.

use crate::{error::Error, scars::skew::Skew};
use std::num::NonZeroU32;

/// Most ranks over which the exponent is fitted.
const FITTED: usize = 1000;

/// The accuracy of a profile's counts.
///
/// Example: [`Ranked`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accuracy {
    /// Counts are exact.
    Exact,
    /// Each count is this number times a sample's count: right on average, see [`Ranked::standard_error`].
    Sampled(NonZeroU32),
    /// No count is above the true one, or below it by more than this. A row that is not listed was used at most this
    /// often.
    Below(u64),
}

/// The rows that were used, most used first; rows with equal counts ascend.
///
/// ```
/// use hotrow::scars::{Accuracy, Counting, Profile};
///
/// let mut profile = Profile::new(&[100], Counting::Exact);
/// profile.count(0, &[7, 7, 7, 9])?;
/// let ranked = profile.ranked();
/// assert_eq!((ranked.accuracy(), ranked.hottest(1)), (Accuracy::Exact, vec![7]));
/// let table = ranked.table();
/// assert_eq!((table.accesses, table.distinct, table.once), (4, 2, Some(0.5)));
/// # Ok::<(), hotrow::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked {
    rows: u64,
    /// (linear row, count).
    used: Vec<(u32, u64)>,
    /// Accesses to rows not listed.
    dropped: u64,
    accuracy: Accuracy,
    accesses: u64,
}

/// The skew of accesses at one point: a line of a skew table.
///
/// Example: [`Ranked`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SkewTable {
    /// Accesses counted.
    pub accesses: u64,
    /// Rows used at all; for bounded counts, rows listed.
    pub distinct: u64,
    /// Shares of the accesses, 0 to 1, that go to the most used 1, 5 and 10 % of the distinct rows (rounded up).
    pub top: [f64; 3],
    /// Share of the distinct rows that were used once; `None` unless counts are exact.
    pub once: Option<f64>,
    /// The s of count ~ rank^-s, by least squares of log count over log rank, over the first 1000 ranks or a tenth of
    /// the distinct rows, whichever is less. `None` for fewer than two ranks.
    pub exponent: Option<f64>,
}

impl Ranked {
    pub(crate) fn new(rows: u64, mut used: Vec<(u32, u64)>, dropped: u64, accuracy: Accuracy) -> Self {
        used.sort_unstable_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        let accesses = used.iter().map(|&(_, count)| count).sum::<u64>() + dropped;
        Self { rows, used, dropped, accuracy, accesses }
    }

    /// Number of rows of the table or tables, used or not.
    #[must_use]
    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// Number of accesses: the sum of all counts. For a sample it is an estimate.
    #[must_use]
    pub const fn accesses(&self) -> u64 {
        self.accesses
    }

    /// The accuracy of the counts.
    #[must_use]
    pub const fn accuracy(&self) -> Accuracy {
        self.accuracy
    }

    /// The linear rows that were used, each with its count, most used first.
    #[must_use]
    pub fn used(&self) -> &[(u32, u64)] {
        &self.used
    }

    /// The `rows` most used linear rows, in order; fewer if fewer were used or listed.
    #[must_use]
    pub fn hottest(&self, rows: usize) -> Vec<u32> {
        self.used.iter().take(rows).map(|&(row, _)| row).collect()
    }

    /// Share of the accesses, 0 to 1, that goes to the `rows` most used rows: the hit rate if they are pinned.
    #[must_use]
    pub fn share_of(&self, rows: usize) -> f64 {
        let taken: u64 = self.used.iter().take(rows).map(|&(_, count)| count).sum();
        taken as f64 / self.accesses.max(1) as f64
    }

    /// The fewest rows, most used first, that get `share` of the accesses, 0 to 1; all listed rows if they do not get
    /// it.
    #[must_use]
    pub fn rows_for(&self, share: f64) -> usize {
        // Counts below 2^53 and their sums are exact in f64.
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

    /// The largest standard error of a count; 0 where counts are exact or bounded.
    #[must_use]
    pub fn standard_error(&self, count: u64) -> f64 {
        match self.accuracy {
            Accuracy::Sampled(one_in) => (count as f64 * f64::from(one_in.get() - 1)).sqrt(),
            Accuracy::Exact | Accuracy::Below(_) => 0.0,
        }
    }

    /// The probability of each row, unused rows included: the input of the model.
    ///
    /// # Errors
    /// The errors of [`Skew::from_counts`]: no accesses, for example.
    pub fn skew(&self) -> Result<Skew, Error> {
        Skew::from_bins(self.bins())
    }

    /// [`Ranked::counts`] as pairs of a count and the number of rows that have it: at most two more pairs than there
    /// are listed rows.
    fn bins(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let (unlisted, each, more) = self.unlisted();
        let listed = self.used.chunk_by(|a, b| a.1 == b.1).map(|alike| (alike[0].1, alike.len() as u64));
        listed.chain([(each + 1, more), (each, unlisted - more)])
    }

    /// Number of rows not listed, the accesses of each, and how many of them have one access more.
    fn unlisted(&self) -> (u64, u64, u64) {
        let unlisted = self.rows - self.used.len() as u64;
        (unlisted, self.dropped / unlisted.max(1), self.dropped % unlisted.max(1))
    }

    /// A count for each row of the table, listed rows first, unused rows included. ([`Ranked::skew`] does not take that
    /// long.) Accesses that bounded counts dropped are shared out evenly among the rows not listed.
    pub fn counts(&self) -> impl Iterator<Item = u64> + '_ {
        let (unlisted, each, more) = self.unlisted();
        let listed = self.used.iter().map(|&(_, count)| count);
        listed.chain((0..unlisted).map(move |i| each + u64::from(i < more)))
    }

    /// The line of this ranking in a skew table.
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
