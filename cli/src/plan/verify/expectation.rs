//! What a run is expected to count, and how far chance moves it.

use super::super::expect::{Expected, Sight, sight};
use super::super::fit::Pinned;
use super::judge::{BOUND, CHANCE};
use hotrow::scars::{Draws, Skew};
use std::collections::BTreeMap;

/// Batches of a run: how many there are of so many lookups.
pub(super) type Batches = BTreeMap<u64, u64>;

/// A run's batches, and all of it at once, for the flush.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expectation {
    pub(super) batches: Sight,
    pub(super) whole: Sight,
}

impl Expectation {
    /// Rows come and go independently, as in a distribution.
    pub(super) fn new(skew: &Skew, pinned: &Pinned, batches: &Batches) -> Self {
        let of_size = |(&lookups, &times): (&u64, &u64)| sight(skew, pinned, lookups).times(times as f64);
        Self {
            batches: batches.iter().map(of_size).fold(Sight::default(), std::ops::Add::add),
            whole: sight(skew, pinned, lookups(batches)),
        }
    }

    /// Batches drawn out of `all` counted lookups, none put back: what one batch has seen another sees less of, so chance has less to
    /// move. Of a whole epoch it moves no hit, and no row that was counted once.
    pub(super) fn drawn_once(mut self, skew: &Skew, pinned: &Pinned, batches: &Batches, all: u64) -> Self {
        let of_row = batches_of_a_row(skew, batches);
        let rows =
            |rows: &dyn Fn(usize) -> f64| of_row.iter().enumerate().map(|(bin, of_row)| rows(bin) * of_row).sum();
        let misses: f64 = rows(&|bin| skew.bins()[bin].rows as f64 - pinned.of_bin[bin]);
        let touched: f64 = rows(&|bin| pinned.of_bin[bin]);
        let sight = &mut self.batches;
        sight.misses.variance = misses;
        sight.touched.variance = touched;
        sight.distinct.variance = misses + touched;
        let drawn = lookups(batches) as f64;
        let Expected { mean: hits, .. } = sight.hits;
        // Hypergeometric: n p (1 - p) (N - n) / (N - 1).
        sight.hits.variance = hits * (1.0 - hits / drawn).max(0.0) * (all as f64 - drawn) / (all as f64 - 1.0).max(1.0);
        self
    }
}

/// Batches of a distribution that are run, unless it takes more to tell.
const BATCHES: u64 = 64;

/// Lookups that are run for that.
const TO_TELL: u64 = 1 << 20;

/// So many batches like this one that chance moves no figure further than is allowed, where that does not take too many.
pub(in super::super) fn enough(batch: &Sight, lookups: u64) -> u64 {
    let enough = |of: &Expected| (CHANCE / BOUND * of.variance.sqrt() / of.mean).powi(2).ceil();
    let most = (TO_TELL / lookups) as f64;
    let figures = [batch.distinct, batch.misses, batch.hits];
    figures.iter().map(enough).filter(|&batches| batches <= most).fold(BATCHES as f64, f64::max) as u64
}

fn lookups(batches: &Batches) -> u64 {
    batches.iter().map(|(lookups, times)| lookups * times).sum()
}

/// For each bin, the variance of the number of batches that one of its rows is in: of each batch p (1 - p), and of each pair of batches
/// twice P(in both) - p q, where P(in both) = p + q - P(in either) and both together are one larger batch.
fn batches_of_a_row(skew: &Skew, batches: &Batches) -> Vec<f64> {
    let see = |lookups: u64| skew.seen_by_bin(Draws::Epoch, lookups as f64).collect::<Vec<f64>>();
    let mut variance = vec![0.0; skew.bins().len()];
    for (&one, &times) in batches {
        let in_one = see(one);
        for (variance, p) in variance.iter_mut().zip(&in_one) {
            *variance += times as f64 * p * (1.0 - p);
        }
        for (&other, &others) in batches {
            let pairs = times as f64 * (others - u64::from(one == other)) as f64;
            if pairs > 0.0 {
                for (((variance, p), q), either) in
                    variance.iter_mut().zip(&in_one).zip(see(other)).zip(see(one + other))
                {
                    *variance += pairs * (p + q - either - p * q);
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

    fn drawn(counts: &[u64], batches: &[(u64, u64)]) -> Expectation {
        let skew = Skew::from_counts(counts.iter().copied()).unwrap();
        let pinned = Pinned { of_bin: vec![0.0; skew.bins().len()] };
        let batches = batches.iter().copied().collect();
        Expectation::new(&skew, &pinned, &batches).drawn_once(&skew, &pinned, &batches, counts.iter().sum())
    }

    #[test]
    fn a_row_counted_once_is_missed_once() {
        let Expected { variance, .. } = drawn(&[1; 1000], &[(7, 142), (6, 1)]).batches.misses;
        assert!(variance < 1e-6, "{variance}");
        // Of half an epoch each batch has seven rows, whichever they are; the rows' own chances do not know that.
        assert!(drawn(&[1; 1000], &[(7, 71)]).batches.misses.variance > 1.0);
    }

    #[test]
    fn shuffles_vary_as_much_as_is_said() {
        let counts: Vec<u64> = (1..=40).map(|row| 60 / row).collect();
        let mut ids: Vec<usize> =
            counts.iter().enumerate().flat_map(|(row, &count)| vec![row; count as usize]).collect();
        let (full, rest) = (ids.len() / 10, ids.len() % 10);
        let found = drawn(&counts, &[(10, full as u64), (rest as u64, 1)]).batches.distinct;
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
        // A variance of 2000 is known to 3 percent; that rows push each other out of small batches is not in it.
        assert!((0.8..1.6).contains(&(found.variance / variance)), "{found:?}, counted {variance}");
    }
}
