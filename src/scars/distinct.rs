//! Expected distinct rows of a batch (SCARS, eq. 1 and 2), for lookups drawn independently or from a shuffled trace.

use crate::scars::skew::{Part, Skew};

/// The way in which the lookups of a batch are drawn.
///
/// ```
/// use hotrow::scars::{Draws, Skew};
///
/// // Ten rows, each looked up once an epoch.
/// let skew = Skew::from_counts([1; 10])?;
/// assert!((skew.distinct_drawn(Draws::Epoch, 10.0, 0) - 10.0).abs() < 1e-9);
/// assert!(skew.distinct_drawn(Draws::Independent, 10.0, 0) < 7.0);
/// # Ok::<(), hotrow::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Draws {
    /// Independently, with replacement: the model of SCARS, `1 - (1 - P)^b`.
    #[default]
    Independent,
    /// From the counted lookups without replacement, as in a shuffled epoch. A formula has no lookups to draw from; it
    /// is drawn independently.
    Epoch,
}

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

    /// Expected distinct rows for either way of drawing. [`Draws::Epoch`] draws whole lookups; between whole numbers
    /// the result is linear.
    #[must_use]
    pub fn distinct_drawn(&self, draws: Draws, lookups: f64, pinned: u64) -> f64 {
        self.rest(pinned).map(|part| part.rows * self.seen(draws, part, lookups)).sum()
    }

    /// For each of [`Skew::bins`], the probability that one of its rows is among `lookups` lookups. This serves sets of
    /// rows that are not the hottest ones, for example those that found a way in a cache. Times `bin.rows`, these add
    /// up to [`Skew::distinct_drawn`].
    pub fn seen_by_bin(&self, draws: Draws, lookups: f64) -> impl Iterator<Item = f64> + '_ {
        self.rest(0).map(move |part| self.seen(draws, part, lookups))
    }

    /// The probability that row `row` is among the lookups: its term of the sum. 0 for a row past the last.
    #[must_use]
    pub fn appears(&self, draws: Draws, lookups: f64, row: u64) -> f64 {
        self.parts(row, row.saturating_add(1)).map(|part| self.seen(draws, part, lookups)).sum()
    }

    /// [`Skew::appears`] for a row of `part`.
    pub(crate) fn seen(&self, draws: Draws, part: Part, lookups: f64) -> f64 {
        match (draws, self.accesses()) {
            (Draws::Epoch, Some(all)) => {
                let (whole, more) = (lookups.max(0.0).floor(), lookups.max(0.0).fract());
                let seen = seen_of_epoch(part, all, whole as u64);
                if more == 0.0 { seen } else { seen + more * (seen_of_epoch(part, all, whole as u64 + 1) - seen) }
            }
            _ => seen(part, lookups),
        }
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
    use rand::{RngExt, SeedableRng};

    use super::*;

    /// Sums the formula itself, row by row.
    fn slow(weights: &[f64], lookups: f64, pinned: usize) -> f64 {
        let all: f64 = weights.iter().sum();
        weights[pinned..].iter().map(|weight| -(lookups * (-weight / all).ln_1p()).exp_m1()).sum()
    }

    type Case = (&'static str, Skew, Vec<f64>);

    fn cases(rows: u64) -> Vec<Case> {
        let spread = rows as f64 / 10.0;
        let weights = |weight: &dyn Fn(f64) -> f64| (0..rows).map(|row| weight(row as f64)).collect();
        vec![
            ("zipf 0.6", Skew::zipf(rows, 0.6).unwrap(), weights(&|i| (i + 1.0).powf(-0.6))),
            ("zipf 1", Skew::zipf(rows, 1.0).unwrap(), weights(&|i| 1.0 / (i + 1.0))),
            ("zipf 2", Skew::zipf(rows, 2.0).unwrap(), weights(&|i| (i + 1.0).powi(-2))),
            ("exponential", Skew::exponential(rows, spread).unwrap(), weights(&|i| (-i / spread).exp())),
            (
                "half-normal",
                Skew::half_normal(rows, spread).unwrap(),
                weights(&|i| (-0.5 * (i / spread).powi(2)).exp()),
            ),
            ("steep", Skew::exponential(rows, 0.5).unwrap(), weights(&|i| (-i / 0.5).exp())),
        ]
    }

    /// The largest error of the binned sums, relative to the stated bound.
    fn compare(rows: u64, lookups: &[f64], pinned: &[u64]) -> f64 {
        let mut worst = 0f64;
        for (name, skew, weights) in cases(rows) {
            for &lookups in lookups {
                for &pinned in pinned {
                    let (found, wanted) = (skew.distinct(lookups, pinned), slow(&weights, lookups, pinned as usize));
                    let off = (found - wanted) / wanted.max(1e-30);
                    assert!(
                        off < skew.error() + 1e-8,
                        "{name}, {lookups} lookups, {pinned} pinned: {found}, wanted {wanted}"
                    );
                    assert!(off > -1e-8, "{name}, {lookups}, {pinned}: the error is upward, {off}");
                    worst = worst.max(off / skew.error().max(1e-12));
                }
            }
        }
        worst
    }

    #[test]
    fn binned_sums_are_within_their_error() {
        let rows = 20_000;
        let lookups = [0.5, 1.0, 2.0, 100.0, 7000.0, 4e5];
        let worst = compare(rows, &lookups, &[0, 1, 50, rows / 97, rows / 3, rows - 1, rows]);
        // The bound is reached in part, so a bound ten times smaller would fail.
        assert!(worst > 0.1, "{worst}");
    }

    #[test]
    fn binned_sums_of_a_million_rows() {
        let worst = compare(1_000_000, &[2e5], &[0, 12_345]);
        assert!(worst > 0.1, "{worst}");
    }

    #[test]
    fn a_thousand_million_rows() {
        let rows = 1_000_000_000;
        // Uniform rows have a closed form.
        let uniform = Skew::uniform(rows).unwrap();
        let wanted = -(rows as f64) * (1e6 * (-1e-9f64).ln_1p()).exp_m1();
        assert!((uniform.distinct(1e6, 0) / wanted - 1.0).abs() < 1e-12);
        for skew in [
            Skew::zipf(rows, 1.0).unwrap(),
            Skew::zipf(rows, 0.8).unwrap(),
            Skew::exponential(rows, 1e7).unwrap(),
            Skew::half_normal(rows, 1e8).unwrap(),
        ] {
            // One lookup sees one row, whatever the bins.
            assert!((skew.distinct(1.0, 0) - 1.0).abs() < 1e-9);
            assert!((skew.distinct(1.0, 12_345_678) - (1.0 - skew.mass(12_345_678))).abs() < 1e-9);
            // Two lookups see `2 - sum P^2`.
            let squares: f64 = skew.bins().iter().map(|bin| bin.rows as f64 * bin.probability.powi(2)).sum();
            assert!((skew.distinct(2.0, 0) - (2.0 - squares)).abs() < 1e-9);
            // More lookups see more rows, but less than proportionally; fewer of the rows left when more are pinned.
            let at = |lookups| skew.distinct(lookups, 1000);
            assert!(at(1e6) > at(5e5) && at(1e6) < 2.0 * at(5e5));
            assert!(skew.distinct(1e6, 100_000_000) < skew.distinct(1e6, 99_000_000));
            assert!(skew.distinct(1e18, 0) <= rows as f64);
        }
        // Zipf, 10^6 lookups: the integral of `1 - e^(-c/x)` over x from 1/2 to n, with c = 10^6/H, by Simpson's rule
        // in ln x.
        let skew = Skew::zipf(rows, 1.0).unwrap();
        let c = 1e6 * skew.probability(0);
        let (from, to, steps) = (0.5f64.ln(), (rows as f64 + 0.5).ln(), 20_000);
        let step = (to - from) / f64::from(steps);
        let at = |i: i32| {
            let x = (from + f64::from(i) * step).exp();
            -x * (-c / x).exp_m1()
        };
        let inner: f64 = (1..steps).map(|i| at(i) * if i % 2 == 1 { 4.0 } else { 2.0 }).sum();
        let wanted = (at(0) + at(steps) + inner) * step / 3.0;
        assert!((skew.distinct(1e6, 0) / wanted - 1.0).abs() < 3e-5, "{} {wanted}", skew.distinct(1e6, 0));
    }

    #[test]
    fn sure_and_no_lookups() {
        let one = Skew::uniform(1).unwrap();
        assert_eq!([0.0, -1.0, 1.0, 2.5, 1e12].map(|lookups| one.distinct(lookups, 0)), [0.0, 0.0, 1.0, 1.0, 1.0]);
        assert_eq!(one.distinct(10.0, 1), 0.0);
        assert_eq!(one.distinct(10.0, 99), 0.0);
        let never = Skew::from_counts([5, 0, 0]).unwrap();
        assert_eq!((never.distinct(1e9, 0), never.distinct(1e9, 1)), (1.0, 0.0));
        assert_eq!(never.distinct_of_epoch(3, 0), Some(1.0));
        assert_eq!(Skew::zipf(5, 1.0).unwrap().distinct_of_epoch(3, 0), None);
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
    fn rows_one_by_one_are_the_sum() {
        let counted = Skew::from_counts([9, 4, 4, 1, 0]).unwrap();
        for (skew, draws) in
            [(&counted, Draws::Independent), (&counted, Draws::Epoch), (&Skew::zipf(700, 0.9).unwrap(), Draws::Epoch)]
        {
            for lookups in [0.0, 1.0, 2.5, 7.0, 18.0] {
                let rows: f64 = (3..skew.rows()).map(|row| skew.appears(draws, lookups, row)).sum();
                let wanted = skew.distinct_drawn(draws, lookups, 3);
                assert!((rows - wanted).abs() <= 1e-12 + skew.error() * wanted, "{draws:?} {lookups}: {rows} {wanted}");
                assert_eq!(skew.appears(draws, lookups, skew.rows()), 0.0);
            }
        }
        assert_eq!(counted.appears(Draws::Epoch, 18.0, 3), 1.0);
        let between = counted.distinct_of_epoch(2, 0).unwrap().midpoint(counted.distinct_of_epoch(3, 0).unwrap());
        assert!((counted.distinct_drawn(Draws::Epoch, 2.5, 0) - between).abs() < 1e-12);
    }

    #[test]
    fn a_whole_epoch_sees_every_counted_row() {
        let counts: Vec<u64> = (0..1000).map(|i| 1000 / (i + 1)).collect();
        let skew = Skew::from_counts(counts.iter().copied()).unwrap();
        let all = skew.accesses().unwrap();
        assert_eq!(skew.distinct_of_epoch(all, 0), Some(1000.0));
        assert_eq!(skew.distinct_of_epoch(all, 990), Some(10.0));
        assert!(skew.distinct(all as f64, 0) < 850.0, "the independent form is off by far");
    }

    #[test]
    fn shuffled_lookups_see_as_many_rows() {
        // 200,000 shuffled lookups of 3,000 rows, in batches of 1 % and of a fifth.
        let mut rng = rand_pcg::Pcg64::seed_from_u64(9);
        let counts: Vec<u64> = (0..3000u64).map(|i| 26_000 / (i + 1) + 1).collect();
        let mut trace: Vec<u32> =
            (0..).zip(&counts).flat_map(|(row, &n)| std::iter::repeat_n(row, n as usize)).collect();
        for i in (1..trace.len()).rev() {
            trace.swap(i, rng.random_range(0..=i));
        }
        let skew = Skew::from_counts(counts).unwrap();
        for (share, independent) in [(100, true), (5, false)] {
            let batch = trace.len() / share;
            let seen: Vec<usize> = trace
                .chunks_exact(batch)
                .map(|batch| batch.iter().collect::<std::collections::HashSet<_>>().len())
                .collect();
            let mean = seen.iter().sum::<usize>() as f64 / seen.len() as f64;
            let exact = skew.distinct_of_epoch(batch as u64, 0).unwrap();
            assert!((exact / mean - 1.0).abs() < 0.004, "{exact} {mean}");
            let off = (skew.distinct(batch as f64, 0) / mean - 1.0).abs();
            assert_eq!(off < 0.01, independent, "batches of 1/{share}: off by {off}");
        }
    }

    #[test]
    fn bins_add_up() {
        let counted = Skew::from_counts([90, 7, 7, 1, 1, 1, 0]).unwrap();
        let law = Skew::zipf(100_000, 1.1).unwrap();
        for (skew, draws, lookups) in [
            (&counted, Draws::Independent, 5.0),
            (&counted, Draws::Epoch, 5.0),
            (&counted, Draws::Epoch, 1000.0),
            (&law, Draws::Independent, 3000.0),
        ] {
            // The mass of each bin is the difference between its ends.
            let mut end = 0;
            for (bin, seen) in skew.bins().iter().zip(skew.seen_by_bin(draws, lookups)) {
                let wanted =
                    skew.distinct_drawn(draws, lookups, end) - skew.distinct_drawn(draws, lookups, end + bin.rows);
                let found = bin.rows as f64 * seen;
                assert!((found - wanted).abs() < 1e-9 * lookups, "{found}, wanted {wanted}");
                end += bin.rows;
            }
            assert_eq!(end, skew.rows());
        }
        assert_eq!(counted.seen_by_bin(Draws::Epoch, 107.0).collect::<Vec<_>>(), [1.0, 1.0, 1.0, 0.0]);
        assert_eq!(counted.seen_by_bin(Draws::Independent, 0.0).sum::<f64>(), 0.0);
    }
}
