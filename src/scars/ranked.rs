//! Rows ranked by use.

use crate::{error::Error, scars::skew::Skew};

/// The rows that were used, most used first; rows with equal counts ascend.
///
/// ```
/// use hotrow::scars::{Counting, Profile};
///
/// let mut profile = Profile::new(&[100], Counting::Exact);
/// profile.count(0, &[7, 7, 7, 9])?;
/// let ranked = profile.ranked();
/// assert_eq!((ranked.hottest(1), ranked.share_of(1), ranked.most_below()), (vec![7], 0.75, 0));
/// # Ok::<(), hotrow::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked {
    pub(crate) rows: u64,
    /// (linear row, count).
    pub(crate) used: Vec<(u32, u64)>,
    /// Accesses to rows not listed.
    pub(crate) dropped: u64,
    /// Accesses that each counted one stands for.
    pub(crate) one_in: u32,
    pub(crate) most_below: u64,
}

impl Ranked {
    pub(crate) fn sorted(mut self) -> Self {
        self.used.sort_unstable_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        self
    }

    /// Number of rows of the table or tables, used or not.
    #[must_use]
    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// Number of accesses: the sum of all counts. For a sample it is an estimate.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.used.iter().map(|&(_, count)| count).sum::<u64>() + self.dropped
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
        taken as f64 / self.accesses().max(1) as f64
    }

    /// The largest standard error of a count of a sample; 0 where counts are exact or bounded.
    #[must_use]
    pub fn standard_error(&self, count: u64) -> f64 {
        (count as f64 * f64::from(self.one_in - 1)).sqrt()
    }

    /// The most by which a bounded count may be below the true one; a row that is not listed was used at most this often. 0 where counts are
    /// exact or sampled.
    #[must_use]
    pub const fn most_below(&self) -> u64 {
        self.most_below
    }

    /// The probability of each row, unused rows included: the input of the model. Accesses that bounded counts dropped are shared out evenly
    /// among the rows not listed.
    ///
    /// # Errors
    /// The errors of [`Skew::from_counts`]: no accesses, for example.
    pub fn skew(&self) -> Result<Skew, Error> {
        let unlisted = self.rows - self.used.len() as u64;
        let (each, more) = (self.dropped / unlisted.max(1), self.dropped % unlisted.max(1));
        let listed = self.used.chunk_by(|a, b| a.1 == b.1).map(|alike| (alike[0].1, alike.len() as u64));
        Skew::from_bins(listed.chain([(each + 1, more), (each, unlisted - more)]))
    }
}
