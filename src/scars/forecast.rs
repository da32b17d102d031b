//! Expected counts of batches while some rows are pinned: distinct rows, misses and hits, with their variance.

use crate::scars::{pinned::Pinned, skew::Skew};
use std::collections::BTreeMap;
use std::ops::{Add, Mul};

/// An expected number of rows or lookups, summed over batches.
///
/// The variance is that of rows that occur independently. In a shuffled epoch the presence of one row makes another row less likely, so the
/// true variance is no larger.
///
/// Example: the [module](crate::scars).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Expected {
    /// The mean.
    pub mean: f64,
    /// The variance.
    pub variance: f64,
}

impl Add for Expected {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { mean: self.mean + other.mean, variance: self.variance + other.variance }
    }
}

impl Mul<f64> for Expected {
    type Output = Self;

    /// The sum of `times` independent copies.
    fn mul(self, times: f64) -> Self {
        Self { mean: self.mean * times, variance: self.variance * times }
    }
}

/// The expected counts of a batch, or of several batches.
///
/// Example: the [module](crate::scars).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Forecast {
    /// Distinct rows (SCARS eq. 2).
    pub distinct: Expected,
    /// Distinct rows that are not pinned.
    pub misses: Expected,
    /// Distinct rows that are pinned.
    pub touched: Expected,
    /// Lookups of pinned rows.
    pub hits: Expected,
}

impl Forecast {
    /// The forecast for a batch of `lookups` lookups.
    #[must_use]
    pub fn batch(skew: &Skew, pinned: &Pinned, lookups: u64) -> Self {
        let mut forecast = Self::default();
        let mut hit_rate = 0.0;
        let seen = skew.seen_by_bin(skew.out_of_epoch(lookups), lookups);
        for ((&(all, probability), &pinned), chance) in skew.bins().iter().zip(pinned.per_bin()).zip(seen) {
            let rows = |rows: f64| Expected { mean: rows * chance, variance: rows * chance * (1.0 - chance) };
            forecast.misses = forecast.misses + rows(all as f64 - pinned);
            forecast.touched = forecast.touched + rows(pinned);
            hit_rate += pinned * probability;
        }
        let lookups = lookups as f64;
        forecast.distinct = forecast.misses + forecast.touched;
        forecast.hits = Expected { mean: lookups * hit_rate, variance: lookups * hit_rate * (1.0 - hit_rate).max(0.0) };
        forecast
    }

    /// The forecast for batches of several sizes: pairs of a batch's lookups and the number of such batches.
    #[must_use]
    pub fn batches(skew: &Skew, pinned: &Pinned, sizes: impl IntoIterator<Item = (u64, u64)>) -> Self {
        sizes.into_iter().fold(Self::default(), |all, (lookups, times)| {
            let (one, times) = (Self::batch(skew, pinned, lookups), times as f64);
            Self {
                distinct: all.distinct + one.distinct * times,
                misses: all.misses + one.misses * times,
                touched: all.touched + one.touched * times,
                hits: all.hits + one.hits * times,
            }
        })
    }

    /// Replaces the variances by those of batches that are drawn from `all` counted lookups without replacement. A row in one batch is
    /// rarer in the other batches, so the variance is smaller. For a whole epoch, hits and rows that were counted once do not vary at all.
    ///
    /// `sizes` maps a batch's lookups to the number of such batches.
    #[must_use]
    pub fn drawn_once(mut self, skew: &Skew, pinned: &Pinned, sizes: &BTreeMap<u64, u64>, all: u64) -> Self {
        let per_row = variance_per_row(skew, sizes);
        let rows =
            |rows: &dyn Fn(usize) -> f64| per_row.iter().enumerate().map(|(bin, per_row)| rows(bin) * per_row).sum();
        let misses: f64 = rows(&|bin| skew.bins()[bin].0 as f64 - pinned.per_bin()[bin]);
        let touched: f64 = rows(&|bin| pinned.per_bin()[bin]);
        self.misses.variance = misses;
        self.touched.variance = touched;
        self.distinct.variance = misses + touched;
        let drawn = sizes.iter().map(|(lookups, times)| lookups * times).sum::<u64>() as f64;
        let hits = self.hits.mean;
        // Hypergeometric: n p (1 - p) (N - n) / (N - 1).
        self.hits.variance = hits * (1.0 - hits / drawn).max(0.0) * (all as f64 - drawn) / (all as f64 - 1.0).max(1.0);
        self
    }
}

/// For each bin, the variance of the number of batches that contain one of its rows: for each batch p (1 - p), and for each pair of batches
/// twice P(in both) - p q, where P(in both) = p + q - P(in either), and both batches together are one larger batch.
fn variance_per_row(skew: &Skew, sizes: &BTreeMap<u64, u64>) -> Vec<f64> {
    let seen = |lookups: u64| skew.seen_by_bin(true, lookups).collect::<Vec<f64>>();
    let mut variance = vec![0.0; skew.bins().len()];
    for (&one, &times) in sizes {
        let in_one = seen(one);
        for (variance, p) in variance.iter_mut().zip(&in_one) {
            *variance += times as f64 * p * (1.0 - p);
        }
        for (&other, &others) in sizes {
            let pairs = times as f64 * (others - u64::from(one == other)) as f64;
            if pairs > 0.0 {
                let (in_other, in_either) = (seen(other), seen(one + other));
                for (bin, variance) in variance.iter_mut().enumerate() {
                    let (p, q) = (in_one[bin], in_other[bin]);
                    *variance += pairs * (p + q - in_either[bin] - p * q);
                }
            }
        }
    }
    variance.into_iter().map(|variance| variance.max(0.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::seq::SliceRandom;
    use rand_pcg::Pcg64;
    use std::collections::BTreeSet;

    fn drawn(counts: &[u64], sizes: &[(u64, u64)]) -> Forecast {
        let skew = Skew::from_counts(counts.iter().copied()).unwrap();
        let (pinned, sizes) = (Pinned::none(&skew), sizes.iter().copied().collect::<BTreeMap<_, _>>());
        Forecast::batches(&skew, &pinned, sizes.clone()).drawn_once(&skew, &pinned, &sizes, counts.iter().sum())
    }

    #[test]
    fn a_row_counted_once_is_missed_once() {
        let Expected { variance, .. } = drawn(&[1; 1000], &[(7, 142), (6, 1)]).misses;
        assert!(variance < 1e-6, "{variance}");
        // In half an epoch each batch has seven rows, whichever they are. The chances of single rows do not include that.
        assert!(drawn(&[1; 1000], &[(7, 71)]).misses.variance > 1.0);
    }

    #[test]
    fn shuffles_vary_as_much_as_is_said() {
        let counts: Vec<u64> = (1..=40).map(|row| 60 / row).collect();
        let mut ids: Vec<usize> =
            counts.iter().enumerate().flat_map(|(row, &count)| vec![row; count as usize]).collect();
        let (full, rest) = (ids.len() / 10, ids.len() % 10);
        let found = drawn(&counts, &[(10, full as u64), (rest as u64, 1)]).distinct;
        let mut random = Pcg64::seed_from_u64(5);
        let rounds = 2000;
        let mut sums = [0.0; 2];
        for _ in 0..rounds {
            ids.shuffle(&mut random);
            let distinct: usize = ids.chunks(10).map(|batch| batch.iter().collect::<BTreeSet<_>>().len()).sum();
            sums[0] += distinct as f64;
            sums[1] += (distinct * distinct) as f64;
        }
        let [mean, squares] = sums.map(|sum| sum / f64::from(rounds));
        let variance = squares - mean * mean;
        assert!((found.mean / mean - 1.0).abs() < 0.005, "{found:?}, counted {mean}");
        // The variance of 2000 rounds is known to 3 percent. The forecast does not include that rows displace each other in small batches.
        assert!((0.8..1.6).contains(&(found.variance / variance)), "{found:?}, counted {variance}");
    }
}
