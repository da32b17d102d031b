//! Distributions of lookups over rows, most probable row first.

use std::collections::HashMap;

use crate::{
    error::{Error, refused},
    scars::{bins, law::Formula, positive},
};

/// The most rows of a distribution: their numbers are exact in a 64-bit float.
const MOST_ROWS: u64 = 1 << 53;

/// The distribution of lookups over rows: `P(e)` of SCARS, eq. 1, as bins of rows that share a probability, most probable first.
///
/// Row numbers are ranks: row 0 is the hottest. Measured counts are kept exactly, in one bin for each count that occurs (at most `sqrt(2 n)` bins for
/// n lookups). Rows of a formula share a bin where their probabilities lie within 1/64 of each other (some thousand bins for 10^9 rows);
/// [`Skew::error`] bounds the effect.
///
/// ```
/// use hotrow_plan::scars::Skew;
///
/// let skew = Skew::from_bins([(3, 1), (1, 2)])?;
/// assert_eq!(skew.bins(), [(1, 0.6), (2, 0.2)]);
/// # Ok::<(), hotrow_plan::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Skew {
    bins: Vec<(u64, f64)>,
    /// Where each bin begins, followed by the number of rows.
    starts: Vec<u64>,
    /// The weight before each bin, followed by the total. Weights are counts where measured.
    before: Vec<f64>,
    /// The formula of the weights within a bin, where they differ.
    law: Option<Formula>,
    accesses: Option<u64>,
    error: f64,
}

impl Skew {
    /// A distribution from pairs of a measured count and the number of rows that have it, in any order; counts may repeat. All rows that were never
    /// looked up are one such pair, (0, rows).
    ///
    /// # Errors
    /// [`Error::Argument`] without rows, if all counts are 0, if they add up to more than 2^53, and for more than 2^53 rows.
    pub fn from_bins(bins: impl IntoIterator<Item = (u64, u64)>) -> Result<Self, Error> {
        let (mut rows_of, mut rows, mut accesses) = (HashMap::<u64, u64>::new(), 0u64, 0u64);
        for (count, more) in bins.into_iter().filter(|&(_, more)| more > 0) {
            rows = rows.saturating_add(more);
            accesses = accesses.saturating_add(count.saturating_mul(more));
            let alike = rows_of.entry(count).or_default();
            *alike = alike.saturating_add(more);
        }
        if rows == 0 {
            return Err(refused("counts", "at least one row", &"none", "count the lookups of some rows"));
        }
        check_rows(rows)?;
        if accesses == 0 || accesses > MOST_ROWS {
            let found = if accesses == 0 { "only zeros".to_owned() } else { format!("{accesses} or more") };
            return Err(refused(
                "counts",
                "1 to 2^53 lookups together",
                &found,
                "count some lookups, or scale the counts down",
            ));
        }
        let mut bins: Vec<(u64, u64)> = rows_of.into_iter().collect();
        bins.sort_unstable_by(|a, b| b.cmp(a));
        let bins = bins.into_iter().map(|(count, rows)| (rows, (count * rows) as f64));
        Ok(Self::new(bins, None, Some(accesses), 0.0))
    }

    /// A distribution by a formula: Zipf (SCARS takes s = 1; with s = 0 all rows are looked up evenly), exponential or half-normal. The scales are
    /// in rows.
    ///
    /// # Errors
    /// [`Error::Argument`] for 0 rows or more than 2^53, for an `s` that is negative or not finite, and for a scale that is not a finite number above 0.
    pub fn of(formula: Formula, rows: u64) -> Result<Self, Error> {
        check_rows(rows)?;
        match formula {
            Formula::Zipf(0.0) => return Ok(Self::new([(rows, rows as f64)], None, None, 0.0)),
            Formula::Zipf(s) => positive("Zipf's s", s, "give the slope of the logarithms, such as 1")?,
            Formula::Exponential(scale) | Formula::HalfNormal(scale) => positive("scale", scale, SCALE)?,
        };
        let (starts, widest) = bins::cut(formula, rows);
        let bins = starts.windows(2).map(|ends| (ends[1] - ends[0], formula.sum(ends[0], ends[1])));
        Ok(Self::new(bins, Some(formula), None, bins::error(widest)))
    }

    /// The lookups of several tables that share a cache: pairs of a table's distribution and the mean lookups that a sample makes of it. Rows are
    /// ranked over all tables. Counted tables are better counted by one [`Profile`](crate::scars::Profile) of all.
    ///
    /// # Errors
    /// [`Error::Argument`] without tables, for more than 2^53 rows, and for lookups that are not a finite number above 0.
    pub fn mixed(tables: &[(&Self, f64)]) -> Result<Self, Error> {
        check_rows(tables.iter().fold(0, |rows: u64, (skew, _)| rows.saturating_add(skew.rows())))?;
        let mut bins = Vec::new();
        for &(skew, lookups) in tables {
            let lookups = positive("lookups of a sample", lookups, "give the mean number of rows a sample looks up")?;
            bins.extend(skew.bins.iter().map(|&(rows, probability)| (probability * lookups, rows)));
        }
        bins.sort_by(|a, b| b.0.total_cmp(&a.0));
        let error = tables.iter().map(|(skew, _)| skew.error).fold(0.0, f64::max);
        Ok(Self::new(bins.into_iter().map(|(weight, rows)| (rows, weight * rows as f64)), None, None, error))
    }

    /// Makes a distribution from bins, each given by its rows and its weight.
    fn new(
        weighed: impl IntoIterator<Item = (u64, f64)>,
        law: Option<Formula>,
        accesses: Option<u64>,
        error: f64,
    ) -> Self {
        let weighed: Vec<(u64, f64)> = weighed.into_iter().collect();
        let (mut starts, mut before) = (vec![0], vec![0.0]);
        let (mut row, mut weight) = (0, 0.0);
        for &(rows, more) in &weighed {
            row += rows;
            weight += more;
            starts.push(row);
            before.push(weight);
        }
        let probability = |(rows, more): (u64, f64)| (more / rows as f64 / weight).min(1.0);
        let bins = weighed.into_iter().map(|bin| (bin.0, probability(bin))).collect();
        Self { bins, starts, before, law, accesses, error }
    }

    /// Number of rows, those included that are never looked up.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.starts[self.bins.len()]
    }

    /// Number of lookups that were counted; `None` for a formula.
    #[must_use]
    pub const fn accesses(&self) -> Option<u64> {
        self.accesses
    }

    /// The bins, most probable first: pairs of a number of rows, and the probability that a lookup asks for one given row of them, the mean over the
    /// bin. The products of the pairs add up to 1.
    #[must_use]
    pub fn bins(&self) -> &[(u64, f64)] {
        &self.bins
    }

    /// The largest relative error that binning causes in the expected distinct rows of a batch: 0 for measured counts, 2.2e-5 for a formula. The
    /// error is upward.
    #[must_use]
    pub const fn error(&self) -> f64 {
        self.error
    }

    /// Share of the lookups, 0 to 1, that ask for one of the `hottest` rows: the hit rate of a cache that pins them.
    #[must_use]
    pub fn mass(&self, hottest: u64) -> f64 {
        self.weight(hottest) / self.before[self.bins.len()]
    }

    /// The fewest rows that get this share of the lookups. For a share of 1 or more: all rows that are ever looked up.
    #[must_use]
    pub fn rows_for(&self, share: f64) -> u64 {
        // Rounding must not lose rows that are used.
        let used = self.bins.partition_point(|bin| bin.1 > 0.0);
        let share = share.min(self.mass(self.starts[used]));
        let (mut few, mut enough) = (0, self.starts[used]);
        if share.is_nan() || share <= 0.0 {
            return 0;
        }
        while enough - few > 1 {
            let middle = few + (enough - few) / 2;
            if self.mass(middle) >= share { enough = middle } else { few = middle }
        }
        enough
    }

    /// The weight of the `hottest` rows together.
    fn weight(&self, hottest: u64) -> f64 {
        let bin = self.starts.partition_point(|&start| start <= hottest) - 1;
        let (start, before) = (self.starts[bin], self.before[bin]);
        if hottest <= start || bin == self.bins.len() {
            return before;
        }
        before
            + match self.law {
                Some(law) => law.sum(start, hottest),
                None => (self.before[bin + 1] - before) / self.bins[bin].0 as f64 * (hottest - start) as f64,
            }
    }
}

const SCALE: &str = "give the rows over which the probability falls by 1/e (half-normal: the standard deviation)";

fn check_rows(rows: u64) -> Result<(), Error> {
    if (1..=MOST_ROWS).contains(&rows) {
        return Ok(());
    }
    Err(refused("rows", "1 to 2^53", &rows, "give the rows of the table"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn laws(rows: u64) -> impl Iterator<Item = Skew> {
        let spread = rows as f64 / 20.0;
        let laws = [0.0, 0.7, 1.0, 1.000_000_1, 2.5].map(Formula::Zipf).into_iter();
        let laws = laws.chain([spread, 0.01, 1e300].map(Formula::Exponential));
        laws.chain([spread, 1e-5, 40.0].map(Formula::HalfNormal)).map(move |law| Skew::of(law, rows).unwrap())
    }

    #[test]
    fn bins_hold_all_rows_and_all_lookups_in_descending_order() {
        for rows in [1, 2, 65, 1000, 1_000_000_000, MOST_ROWS] {
            for skew in laws(rows) {
                assert_eq!(skew.rows(), rows);
                assert_eq!(skew.bins().iter().map(|bin| bin.0).sum::<u64>(), rows);
                let mass: f64 = skew.bins().iter().map(|&(rows, probability)| rows as f64 * probability).sum();
                assert!((mass - 1.0).abs() < 1e-9, "{mass}");
                assert!((skew.mass(rows) - 1.0).abs() < 1e-15 && skew.mass(0) == 0.0);
                let sound = |bins: &[(u64, f64)]| bins[0].1 >= bins[1].1 * (1.0 - 1e-9);
                assert!(skew.bins().windows(2).all(sound), "descending");
                assert!(skew.bins().iter().all(|bin| (0.0..=1.0).contains(&bin.1)));
                assert!(skew.bins().len() < 8000, "{}", skew.bins().len());
                assert!(skew.error() < 2.2e-5 && (rows > 65 || skew.error() == 0.0), "{}", skew.error());
            }
        }
    }

    #[test]
    fn masses_are_those_of_the_formulas() {
        let rows = 20_000u64;
        for law in [Formula::Zipf(1.0), Formula::Exponential(900.0), Formula::HalfNormal(3000.0)] {
            let skew = Skew::of(law, rows).unwrap();
            let weights: Vec<f64> = (0..rows).map(|row| law.log_weight(row as f64).exp()).collect();
            let all: f64 = weights.iter().sum();
            let mut mass = 0.0;
            for (row, weight) in (0..rows).zip(weights) {
                if row % 37 == 0 {
                    // Within a bin too.
                    assert!((skew.mass(row) - mass).abs() < 1e-10, "{row}");
                }
                mass += weight / all;
            }
            assert!((skew.mass(100) - skew.mass(101)).abs() > 1e-5, "one row is seen");
        }
    }

    #[test]
    fn counts_are_kept_exactly() {
        let skew = Skew::from_bins([(3, 1), (0, 2), (7, 1), (3, 1), (1, 1)]).unwrap();
        assert_eq!((skew.rows(), skew.accesses(), skew.error()), (6, Some(14), 0.0));
        assert_eq!(skew.bins(), [(1, 7.0 / 14.0), (2, 3.0 / 14.0), (1, 1.0 / 14.0), (2, 0.0)]);
        assert_eq!(
            [0, 1, 2, 3, 4, 6, 99].map(|rows| (skew.mass(rows) * 14.0).round()),
            [0.0, 7.0, 10.0, 13.0, 14.0, 14.0, 14.0]
        );
        assert_eq!(
            [0.0, 0.4, 0.5, 0.51, 10.0 / 14.0, 0.99, 1.0, 2.0].map(|share| skew.rows_for(share)),
            [0, 1, 1, 2, 2, 4, 4, 4]
        );
    }

    #[test]
    fn what_is_no_distribution_is_refused_by_name() {
        let refused = [
            (Skew::from_bins([(5, 0)]), "counts"),
            (Skew::from_bins([(1 << 40, 1 << 40)]), "counts"),
            (Skew::from_bins([(0, u64::MAX), (0, u64::MAX), (1, 1)]), "rows"),
            (Skew::from_bins([(0, 2)]), "counts"),
            (Skew::from_bins([(u64::MAX, 1), (5, 1)]), "counts"),
            (Skew::of(Formula::Zipf(0.0), 0), "rows"),
            (Skew::of(Formula::Zipf(0.0), u64::MAX), "rows"),
            (Skew::of(Formula::Zipf(-0.5), 10), "Zipf's s"),
            (Skew::of(Formula::Zipf(f64::NAN), 10), "Zipf's s"),
            (Skew::of(Formula::Exponential(0.0), 10), "scale"),
            (Skew::of(Formula::HalfNormal(f64::NAN), 10), "scale"),
        ];
        for (result, wanted) in refused {
            let Err(Error::Argument { what, .. }) = result else { panic!("{wanted} was accepted") };
            assert_eq!(what, wanted);
        }
    }
}
