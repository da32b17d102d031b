//! Expected distinct rows of a batch (SCARS, eq. 1 and 2), for lookups drawn independently or from a shuffled trace.

use crate::scars::skew::{Part, Skew};

impl Skew {
    /// Expected distinct rows among `lookups` lookups, without the `pinned` hottest rows: `sum 1 - (1 - P)^b` (SCARS,
    /// eq. 2, and the sum of eq. 6). `lookups` may be any real number; 0 and negative numbers give 0.
    ///
    /// Lookups are drawn independently. The relative error is at most [`Skew::error`].
    #[must_use]
    pub fn distinct(&self, lookups: f64, pinned: u64) -> f64 {
        self.rest(pinned).map(|part| part.rows * seen(part, lookups)).sum()
    }

    /// [`Skew::distinct`] for a batch drawn from the counted lookups without replacement, as in a shuffled epoch: a row
    /// with c of the N lookups contributes `1 - C(N-c, b) / C(N, b)`. Exact. `None` for a formula, which has no lookups
    /// to draw from.
    ///
    /// This matters where a batch is a large part of the epoch: for all N lookups this gives every row that was
    /// counted, while independent draws give only 1 - 1/e of the rows that were counted once.
    #[must_use]
    pub fn distinct_of_epoch(&self, lookups: u64, pinned: u64) -> Option<f64> {
        let all = self.accesses()?;
        Some(self.rest(pinned).map(|part| part.rows * seen_of_epoch(part, all, lookups)).sum())
    }

    /// Whether a batch of `lookups` lookups counts as drawn out of a shuffled epoch (hypergeometric): if it is more than a hundredth of the
    /// counted lookups. Else lookups count as independent (binomial, SCARS eq. 1).
    #[must_use]
    pub fn out_of_epoch(&self, lookups: u64) -> bool {
        self.accesses().is_some_and(|all| lookups.saturating_mul(100) > all)
    }

    /// For each of [`Skew::bins`], the probability that one of its rows is among `lookups` lookups. This serves sets of
    /// rows that are not the hottest ones, for example those that found a way in a cache.
    pub(crate) fn seen_by_bin(&self, out_of_epoch: bool, lookups: u64) -> impl Iterator<Item = f64> + '_ {
        let all = self.accesses().filter(|_| out_of_epoch);
        self.rest(0).map(move |part| match all {
            Some(all) => seen_of_epoch(part, all, lookups),
            None => seen(part, lookups as f64),
        })
    }
}

fn seen(part: Part, lookups: f64) -> f64 {
    // 0 lookups times the logarithm of 0 would be NaN.
    if lookups > 0.0 { -(lookups * part.log).exp_m1() } else { 0.0 }
}

fn seen_of_epoch(part: Part, all: u64, lookups: u64) -> f64 {
    let count = (part.probability * all as f64).round() as u64;
    -log_absent(all, count, lookups.min(all)).exp_m1()
}

/// `ln(C(n-c, b) / C(n, b))`: the logarithm of the probability that none of c lies among b drawn out of n. Computed as
/// the product of `1 - b/(n-j)` over j below c, or with b and c exchanged. Logarithms of factorials would be too rough:
/// at n = 5e6 they are off by 1e-8, and a row counted once has 2e-7.
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
    use proptest::prelude::*;

    use super::*;
    use crate::scars::law::Formula;

    /// Sums the formula itself, row by row.
    fn slow(law: Formula, rows: u64, lookups: f64, pinned: usize) -> f64 {
        let weights: Vec<f64> = (0..rows).map(|row| law.log_weight(row as f64).exp()).collect();
        let all: f64 = weights.iter().sum();
        weights[pinned..].iter().map(|weight| -(lookups * (-weight / all).ln_1p()).exp_m1()).sum()
    }

    #[test]
    fn binned_sums_are_within_their_error() {
        let (rows, mut worst) = (20_000, 0f64);
        let laws = [0.6, 1.0, 2.0].map(Formula::Zipf).into_iter().chain([2000.0, 0.5].map(Formula::Exponential));
        for law in laws.chain([Formula::HalfNormal(2000.0)]) {
            let skew = Skew::of(law, rows).unwrap();
            for lookups in [0.5, 1.0, 2.0, 100.0, 7000.0, 4e5] {
                for pinned in [0, 1, 50, rows / 97, rows / 3, rows - 1, rows] {
                    let wanted = slow(law, rows, lookups, pinned as usize);
                    let off = (skew.distinct(lookups, pinned) - wanted) / wanted.max(1e-30);
                    // The error is upward.
                    assert!((-1e-8..skew.error() + 1e-8).contains(&off), "{law:?} {lookups} {pinned}: off by {off}");
                    worst = worst.max(off / skew.error().max(1e-12));
                }
            }
        }
        // The bound is reached in part, so a bound ten times smaller would fail.
        assert!(worst > 0.1, "{worst}");
    }

    #[test]
    fn a_thousand_million_rows() {
        let rows = 1_000_000_000;
        // Uniform rows have a closed form.
        let uniform = Skew::uniform(rows).unwrap();
        let wanted = -(rows as f64) * (1e6 * (-1e-9f64).ln_1p()).exp_m1();
        assert!((uniform.distinct(1e6, 0) / wanted - 1.0).abs() < 1e-12);
        for law in [Formula::Zipf(1.0), Formula::Zipf(0.8), Formula::Exponential(1e7), Formula::HalfNormal(1e8)] {
            let skew = Skew::of(law, rows).unwrap();
            // One lookup sees one row, whatever the bins. Two lookups see `2 - sum P^2`.
            assert!((skew.distinct(1.0, 12_345_678) - (1.0 - skew.mass(12_345_678))).abs() < 1e-9);
            let squares: f64 = skew.bins().iter().map(|bin| bin.rows as f64 * bin.probability.powi(2)).sum();
            assert!((skew.distinct(2.0, 0) - (2.0 - squares)).abs() < 1e-9);
            assert!(skew.distinct(1e18, 0) <= rows as f64);
        }
    }

    #[test]
    fn sure_and_no_lookups() {
        let one = Skew::uniform(1).unwrap();
        assert_eq!([0.0, -1.0, 1.0, 2.5, 1e12].map(|lookups| one.distinct(lookups, 0)), [0.0, 0.0, 1.0, 1.0, 1.0]);
        assert_eq!([1, 99].map(|pinned| one.distinct(10.0, pinned)), [0.0, 0.0]);
        let never = Skew::from_counts([5, 0, 0]).unwrap();
        assert_eq!((never.distinct(1e9, 0), never.distinct(1e9, 1)), (1.0, 0.0));
        assert_eq!(never.distinct_of_epoch(3, 0), Some(1.0));
        assert_eq!(one.distinct_of_epoch(3, 0), None);
    }

    /// The quotient of binomial coefficients, factor by factor.
    fn slow_of_epoch(counts: &[u64], lookups: u64, pinned: usize) -> f64 {
        let all: u64 = counts.iter().sum();
        let mut sorted = counts.to_vec();
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        let absent =
            |c: u64| (0..lookups).map(|j| (all - j).saturating_sub(c) as f64 / (all - j) as f64).product::<f64>();
        sorted[pinned..].iter().map(|&c| 1.0 - absent(c)).sum()
    }

    proptest! {
        #[test]
        fn out_of_an_epoch(counts in prop::collection::vec(prop_oneof![0u64..5, 0u64..300], 1..60), share in 0.0..=1.0, pinned in 0.0..=1.0) {
            let all: u64 = counts.iter().sum();
            prop_assume!(all > 0);
            let lookups = (share * all as f64) as u64;
            let pinned = (pinned * counts.len() as f64) as usize;
            let skew = Skew::from_counts(counts.iter().copied()).unwrap();
            let found = skew.distinct_of_epoch(lookups, pinned as u64).unwrap();
            let wanted = slow_of_epoch(&counts, lookups, pinned);
            prop_assert!((found - wanted).abs() < 1e-9 * (1.0 + wanted), "{} {}", found, wanted);
            // Draws without replacement never give fewer rows than independent ones.
            prop_assert!(found >= skew.distinct(lookups as f64, pinned as u64) - 1e-9);
        }
    }

    #[test]
    fn a_whole_epoch_sees_every_counted_row() {
        let skew = Skew::from_counts((0..1000).map(|i| 1000 / (i + 1))).unwrap();
        let all = skew.accesses().unwrap();
        assert_eq!([0, 990].map(|pinned| skew.distinct_of_epoch(all, pinned)), [Some(1000.0), Some(10.0)]);
        assert!(skew.distinct(all as f64, 0) < 850.0, "the independent form is off by far");
        assert_eq!(skew.seen_by_bin(true, all).fold(1.0, f64::min), 1.0);
        assert!(skew.out_of_epoch(all / 100 + 1) && !skew.out_of_epoch(all / 100));
    }
}
