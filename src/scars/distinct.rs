//! The probability that a row is among the lookups of a batch (SCARS, eq. 1), for lookups drawn independently or from a shuffled trace.

use crate::scars::skew::Skew;

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
    use proptest::prelude::*;

    use super::*;
    use crate::scars::law::Formula;

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
        assert!(
            (distinct(&Skew::of(Formula::Zipf(0.0), 1_000_000_000).unwrap(), false, 1_000_000) / wanted - 1.0).abs()
                < 1e-12
        );
    }

    /// The quotient of binomial coefficients, factor by factor.
    fn slow_of_epoch(counts: &[u64], lookups: u64) -> f64 {
        let all: u64 = counts.iter().sum();
        let absent =
            |c: u64| (0..lookups).map(|j| (all - j).saturating_sub(c) as f64 / (all - j) as f64).product::<f64>();
        counts.iter().map(|&c| 1.0 - absent(c)).sum()
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
            // Draws without replacement never give fewer rows than independent ones.
            prop_assert!(found >= distinct(&skew, false, lookups) - 1e-9);
        }
    }

    #[test]
    fn a_whole_epoch_sees_every_counted_row() {
        let skew = Skew::from_bins((0..1000).map(|i| (1000 / (i + 1), 1))).unwrap();
        let all = skew.accesses().unwrap();
        assert_eq!((distinct(&skew, true, all), skew.seen_by_bin(true, all).fold(1.0, f64::min)), (1000.0, 1.0));
        assert!(distinct(&skew, false, all) < 850.0, "the independent form is off by far");
        assert!(skew.out_of_epoch(all / 100 + 1) && !skew.out_of_epoch(all / 100));
    }
}
