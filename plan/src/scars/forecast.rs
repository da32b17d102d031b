//! Expected counts of batches while some rows are pinned: distinct rows, misses and hits, with their variance. Compares counts with them, with an
//! allowance for chance.

use crate::scars::{pinned::Pinned, skew::Skew};
use std::collections::BTreeMap;
use std::ops::{Add, Mul};

/// An expected number of rows or lookups, summed over batches.
///
/// The variance is that of rows that occur independently. In a shuffled epoch the presence of one row makes another row less likely, so the true
/// variance is no larger.
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

    /// Replaces the variances by those of batches that are drawn from `all` counted lookups without replacement. A row in one batch is rarer in the
    /// other batches, so the variance is smaller. For a whole epoch, hits and rows that were counted once do not vary at all.
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

/// For each bin, the variance of the number of batches that contain one of its rows: for each batch p (1 - p), and for each pair of batches twice
/// P(in both) - p q, where P(in both) = p + q - P(in either), and both batches together are one larger batch.
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

/// The largest deviation allowed, as a share of the forecast.
const TOLERANCE: f64 = 0.01;

/// The largest deviation that chance may explain when only part of an epoch is run. If chance can move a count further, the run proves nothing.
const BOUND: f64 = 0.03;

/// Number of standard deviations that chance may move a count by.
const CHANCE: f64 = 4.0;

/// A mean so small that a row is seen in one of ten thousand runs only. It counts as zero.
const NOTHING: f64 = 1e-4;

/// Number of batches that are run at least.
const BATCHES: u64 = 64;

/// Most lookups that are run to get beyond chance.
const TO_TELL: u64 = 1 << 20;

/// The comparison of a count with its forecast.
///
/// Example: the [module](crate::scars).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Judgement {
    /// The mean of the forecast.
    pub predicted: f64,
    /// The count.
    pub counted: f64,
    /// The count less the mean, in percent of the mean.
    pub deviation_percent: f64,
    /// The largest deviation allowed, in percent of the mean.
    pub allowed_percent: f64,
    /// Whether chance alone may move the count by more than the allowed deviation. Such a count proves nothing.
    pub too_short: bool,
    /// Whether the deviation is allowed and the run is not too short.
    pub within: bool,
}

impl Expected {
    /// Compares a count with this forecast of rows or lookups, each worth `units`. It may be off by 1 %; if only part of an epoch is counted, by 4
    /// standard deviations, at most 3 %. If the forecast is zero, the count must be zero.
    #[must_use]
    pub fn judge(self, units: f64, counted: f64, whole_epoch: bool) -> Judgement {
        let Self { mean, variance } = self;
        let (found, bound) = (counted / units, if whole_epoch { TOLERANCE } else { BOUND });
        let (deviation, allowed, chance) = if mean < NOTHING {
            (if found == 0.0 { 0.0 } else { (found - mean) / mean }, 0.0, 0.0)
        } else {
            let chance = CHANCE * variance.max(0.0).sqrt() / mean;
            ((found - mean) / mean, TOLERANCE.max(chance.min(bound)), chance)
        };
        let too_short = chance > bound && deviation.abs() <= chance;
        Judgement {
            predicted: mean * units,
            counted,
            deviation_percent: 100.0 * deviation,
            allowed_percent: 100.0 * allowed,
            too_short,
            within: !too_short && deviation.abs() <= allowed,
        }
    }
}

impl Forecast {
    /// The number of batches like this one, each of `lookups` lookups, after which chance moves no count by more than 3 %. A count that would need
    /// more than 2^20 lookups is left out. At least 64.
    #[must_use]
    pub fn enough_batches(&self, lookups: u64) -> u64 {
        let enough = |of: Expected| (CHANCE / BOUND * of.variance.sqrt() / of.mean).powi(2).ceil();
        let most = (TO_TELL / lookups.max(1)) as f64;
        let counts = [self.distinct, self.misses, self.hits].map(enough);
        counts.into_iter().filter(|&batches| batches <= most).fold(BATCHES as f64, f64::max) as u64
    }
}

impl Skew {
    /// Whether a batch of `lookups` lookups counts as drawn out of a shuffled epoch (hypergeometric): if it is more than a hundredth of the counted
    /// lookups. Else lookups count as independent (binomial, SCARS eq. 1).
    #[must_use]
    pub fn out_of_epoch(&self, lookups: u64) -> bool {
        self.accesses().is_some_and(|all| lookups.saturating_mul(100) > all)
    }

    /// For each of [`Skew::bins`], the probability that one of its rows is among `lookups` lookups.
    ///
    /// Out of an epoch, batches are drawn from the counted lookups without replacement: a row with c of the N lookups has `1 - C(N-c, b) / C(N, b)`.
    /// This matters where a batch is a large part of the epoch: for all N lookups this gives every row that was counted, while independent draws give
    /// only 1 - 1/e of the rows that were counted once.
    pub(crate) fn seen_by_bin(&self, out_of_epoch: bool, lookups: u64) -> impl Iterator<Item = f64> + '_ {
        let all = self.accesses().filter(|_| out_of_epoch);
        self.bins().iter().map(move |&(_, probability)| match all {
            Some(all) => seen_of_epoch(probability, all, lookups),
            None => seen(probability, lookups as f64),
        })
    }
}

fn seen(probability: f64, lookups: f64) -> f64 {
    // 0 lookups times the logarithm of 0 would be NaN.
    if lookups > 0.0 { -(lookups * (-probability).ln_1p()).exp_m1() } else { 0.0 }
}

fn seen_of_epoch(probability: f64, all: u64, lookups: u64) -> f64 {
    let count = (probability * all as f64).round() as u64;
    -log_absent(all, count, lookups.min(all)).exp_m1()
}

/// `ln(C(n-c, b) / C(n, b))`: the logarithm of the probability that none of c lies among b drawn out of n. Computed as the product of `1 - b/(n-j)`
/// over j below c, or with b and c exchanged. Logarithms of factorials would be too rough: at n = 5e6 they are off by 1e-8, and a row counted once
/// has 2e-7.
fn log_absent(n: u64, c: u64, b: u64) -> f64 {
    let (few, many) = (c.min(b), c.max(b));
    if few > 0 && many > n - few {
        return f64::NEG_INFINITY;
    }
    let mut sum = 0.0;
    for j in 0..few {
        sum += (-(many as f64) / (n - j) as f64).ln_1p();
        if sum < -45.0 {
            // Too small to change a sum with 1.
            return f64::NEG_INFINITY;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scars::law::Formula;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand::seq::SliceRandom;
    use rand_pcg::Pcg64;
    use std::collections::BTreeSet;

    fn drawn(counts: &[u64], sizes: &[(u64, u64)]) -> Forecast {
        let skew = Skew::from_bins(counts.iter().map(|&count| (count, 1))).unwrap();
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
        let of_row = |(row, &count): (usize, &u64)| vec![row; count as usize];
        let mut ids: Vec<usize> = counts.iter().enumerate().flat_map(of_row).collect();
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

    fn judged(whole_epoch: bool, mean: f64, variance: f64, counted: f64) -> Judgement {
        Expected { mean, variance }.judge(1.0, counted, whole_epoch)
    }

    #[test]
    fn one_percent_is_the_bound_and_chance_is_allowed_for() {
        // A standard deviation of 0, and of half a percent: five rows of a thousand.
        let cases = [(0.0, [1010.0, 990.0], [1010.1, 989.9]), (25.0, [1019.0, 981.0], [1021.0, 979.0])];
        for (variance, right, wrong) in cases {
            assert_eq!(right.map(|counted| judged(false, 1000.0, variance, counted).within), [true; 2]);
            assert_eq!(wrong.map(|counted| judged(false, 1000.0, variance, counted).within), [false; 2]);
        }
        let bytes = Expected { mean: 200.0, variance: 0.0 }.judge(16.0, 199.0 * 16.0, false);
        assert_eq!((bytes.predicted, bytes.deviation_percent, bytes.allowed_percent), (3200.0, -0.5, 1.0));
    }

    #[test]
    fn what_chance_moves_too_far_proves_nothing() {
        // One percent a standard deviation: a count that is right, or off by three percent, proves nothing; one that is off by five is wrong.
        for (counted, too_short) in [(1000.0, true), (970.0, true), (950.0, false)] {
            let found = judged(false, 1000.0, 100.0, counted);
            assert_eq!((found.too_short, found.within), (too_short, false), "{found:?}");
            assert!(found.allowed_percent <= 3.0, "{found:?}");
        }
        // For a whole epoch only one percent is allowed, and chance must not be able to move the count that far.
        assert!(judged(true, 1000.0, 25.0, 1000.0).too_short);
        assert!(judged(true, 1000.0, 6.0, 1009.0).within && !judged(true, 1000.0, 6.0, 1011.0).within);
    }

    #[test]
    fn nothing_predicted_nothing_counted() {
        assert!(judged(false, 0.0, 0.0, 0.0).within && judged(false, 1e-11, 1e-11, 0.0).within);
        for (mean, counted) in [(0.0, 1.0), (1e-11, 1.0), (1000.0, 0.0), (1000.0, f64::NAN)] {
            let found = judged(false, mean, 0.0, counted);
            assert!(!found.within && !found.too_short, "{found:?}");
        }
    }

    #[test]
    fn enough_batches_are_those_that_tell() {
        let all = |variance| Expected { mean: 100.0, variance };
        let forecast = |variance| Forecast { distinct: all(variance), misses: all(variance), ..Forecast::default() };
        // 4 / 0.03 standard deviations of a tenth each, squared. A count without variance needs only the least number.
        assert_eq!(forecast(100.0).enough_batches(100), 178);
        assert_eq!(forecast(0.0).enough_batches(100), 64);
        assert_eq!(forecast(100.0).enough_batches(1 << 13), 64, "178 would take too many lookups");
    }

    /// The expected distinct rows among `lookups` lookups.
    fn distinct(skew: &Skew, out_of_epoch: bool, lookups: u64) -> f64 {
        skew.bins().iter().zip(skew.seen_by_bin(out_of_epoch, lookups)).map(|(bin, seen)| bin.0 as f64 * seen).sum()
    }

    /// Sums the formula itself, row by row.
    fn slow(law: Formula, rows: u64, lookups: u64) -> f64 {
        let weights: Vec<f64> = (0..rows).map(|row| law.log_weight(row as f64).exp()).collect();
        let all: f64 = weights.iter().sum();
        weights.iter().map(|weight| -(lookups as f64 * (-weight / all).ln_1p()).exp_m1()).sum()
    }

    #[test]
    fn binned_sums_are_within_their_error() {
        let (rows, mut worst) = (20_000, 0f64);
        let laws = [0.6, 1.0, 2.0].map(Formula::Zipf).into_iter().chain([2000.0, 0.5].map(Formula::Exponential));
        for law in laws.chain([Formula::HalfNormal(2000.0)]) {
            let skew = Skew::of(law, rows).unwrap();
            for lookups in [1, 2, 100, 7000, 400_000] {
                let wanted = slow(law, rows, lookups);
                let off = (distinct(&skew, false, lookups) - wanted) / wanted;
                // The error is upward.
                assert!((-1e-8..skew.error() + 1e-8).contains(&off), "{law:?} {lookups}: off by {off}");
                worst = worst.max(off / skew.error().max(1e-12));
            }
        }
        // The bound is reached in part, so a bound ten times smaller would fail.
        assert!(worst > 0.1, "{worst}");
    }

    #[test]
    fn sure_and_no_lookups() {
        let one = Skew::of(Formula::Zipf(0.0), 1).unwrap();
        assert_eq!([0, 1, 2, 1 << 40].map(|lookups| distinct(&one, false, lookups)), [0.0, 1.0, 1.0, 1.0]);
        let never = Skew::from_bins([(5, 1), (0, 2)]).unwrap();
        assert_eq!([(false, 1 << 30), (true, 3)].map(|(of, lookups)| distinct(&never, of, lookups)), [1.0, 1.0]);
        assert_eq!(distinct(&one, true, 3), 1.0, "a formula has no epoch");
        // Rows that are looked up evenly have a closed form.
        let wanted = -1e9 * (1e6 * (-1e-9f64).ln_1p()).exp_m1();
        let found = distinct(&Skew::of(Formula::Zipf(0.0), 1_000_000_000).unwrap(), false, 1_000_000);
        assert!((found / wanted - 1.0).abs() < 1e-12);
    }

    /// The quotient of binomial coefficients, factor by factor.
    fn slow_of_epoch(counts: &[u64], lookups: u64) -> f64 {
        let all: u64 = counts.iter().sum();
        let factor = |c: u64, left: u64| left.saturating_sub(c) as f64 / left as f64;
        counts.iter().map(|&c| 1.0 - (0..lookups).map(|j| factor(c, all - j)).product::<f64>()).sum()
    }

    proptest! {
        #[test]
        fn out_of_an_epoch(counts in prop::collection::vec(prop_oneof![0u64..5, 0u64..300], 1..60), share in 0.0..=1.0) {
            let all: u64 = counts.iter().sum();
            prop_assume!(all > 0);
            let lookups = (share * all as f64) as u64;
            let skew = Skew::from_bins(counts.iter().map(|&count| (count, 1))).unwrap();
            let (found, wanted) = (distinct(&skew, true, lookups), slow_of_epoch(&counts, lookups));
            prop_assert!((found - wanted).abs() < 1e-9 * (1.0 + wanted), "{} {}", found, wanted);
            prop_assert!(skew.out_of_epoch(all / 100 + 1) && !skew.out_of_epoch(all / 100));
            // Draws without replacement never give fewer rows than independent ones.
            prop_assert!(found >= distinct(&skew, false, lookups) - 1e-9);
        }
    }
}
