//! What the model expects of batches, when it is known which rows are pinned: distinct rows, missing rows, hits, and how far chance moves
//! them.

use super::fit::Pinned;
use hotrow::scars::{Draws, Skew};

/// A number of rows or lookups, summed over batches: its mean, and the variance if rows came and went independently. Out of a shuffled
/// epoch one row's presence makes another's less likely: the true variance is no larger.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Expected {
    pub(super) mean: f64,
    pub(super) variance: f64,
}

impl Expected {
    pub(super) fn times(self, number: f64) -> Self {
        Self { mean: self.mean * number, variance: self.variance * number }
    }
}

impl std::ops::Add for Expected {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { mean: self.mean + other.mean, variance: self.variance + other.variance }
    }
}

/// What a batch, or a run, of `lookups` is expected to show.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sight {
    /// Distinct rows.
    pub(super) distinct: Expected,
    /// Those of them that are not pinned.
    pub(super) misses: Expected,
    /// Those that are.
    pub(super) touched: Expected,
    /// Lookups of pinned rows.
    pub(super) hits: Expected,
}

impl std::ops::Add for Sight {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            distinct: self.distinct + other.distinct,
            misses: self.misses + other.misses,
            touched: self.touched + other.touched,
            hits: self.hits + other.hits,
        }
    }
}

impl Sight {
    pub(super) fn times(self, number: f64) -> Self {
        let Self { distinct, misses, touched, hits } = self;
        let [distinct, misses, touched, hits] = [distinct, misses, touched, hits].map(|one| one.times(number));
        Self { distinct, misses, touched, hits }
    }
}

/// How a batch's lookups are drawn: out of a shuffled epoch (hypergeometric) where there is one, and a batch is more than a hundredth of
/// it; else independently (binomial, P3 eq. 1).
pub(super) fn draws(skew: &Skew, lookups: u64) -> Draws {
    match skew.accesses() {
        Some(all) if lookups.saturating_mul(100) > all => Draws::Epoch,
        _ => Draws::Independent,
    }
}

/// What reports call it.
pub(super) fn form(skew: &Skew, lookups: u64) -> &'static str {
    match draws(skew, lookups) {
        Draws::Epoch => "hypergeometric",
        Draws::Independent => "binomial",
    }
}

/// A batch of so many lookups.
pub(super) fn sight(skew: &Skew, pinned: &Pinned, lookups: u64) -> Sight {
    let mut sight = Sight::default();
    let mut mass = 0.0;
    let seen = skew.seen_by_bin(draws(skew, lookups), lookups as f64);
    for ((bin, &pinned), chance) in skew.bins().iter().zip(&pinned.of_bin).zip(seen) {
        let rows = |rows: f64| Expected { mean: rows * chance, variance: rows * chance * (1.0 - chance) };
        sight.misses = sight.misses + rows(bin.rows as f64 - pinned);
        sight.touched = sight.touched + rows(pinned);
        mass += pinned * bin.probability;
    }
    let lookups = lookups as f64;
    sight.distinct = sight.misses + sight.touched;
    sight.hits = Expected { mean: lookups * mass, variance: lookups * mass * (1.0 - mass).max(0.0) };
    sight
}

/// An epoch of so many lookups: its whole batches, and the shorter last one.
pub(super) fn epoch(skew: &Skew, pinned: &Pinned, batch: u64, lookups: u64) -> Sight {
    let sizes = [(lookups / batch, batch), (1, lookups % batch)].into_iter().filter(|&(times, size)| times * size > 0);
    sizes.fold(Sight::default(), |sum, (times, size)| sum + sight(skew, pinned, size).times(times as f64))
}
