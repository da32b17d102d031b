//! The hottest rows that are pinned. A set of the cache has a limited number of ways, so some rows find none, and colder rows take the free
//! ways of other sets.

use crate::{
    config::WAYS,
    scars::{
        fit::{expected_fit, left_out},
        skew::Skew,
    },
};

/// The number of pinned rows in each bin of a [`Skew`]. It may be an expectation, and then need not be whole.
///
/// Example: the [module](crate::scars::sets).
#[derive(Clone, Debug, PartialEq)]
pub struct PinnedRows {
    per_bin: Vec<f64>,
}

impl PinnedRows {
    /// No row is pinned.
    #[must_use]
    pub fn none(skew: &Skew) -> Self {
        Self { per_bin: vec![0.0; skew.bins().len()] }
    }

    /// Pins the rows of these ranks, which ascend; rank 0 is the hottest row.
    #[must_use]
    pub fn known(skew: &Skew, ranks: &[usize]) -> Self {
        let mut ranks = ranks.iter().map(|&rank| rank as u64).peekable();
        let mut end = 0;
        let per_bin = skew.bins().iter().map(|bin| {
            end += bin.rows;
            std::iter::from_fn(|| ranks.next_if(|&rank| rank < end)).count() as f64
        });
        Self { per_bin: per_bin.collect() }
    }

    /// `pinned(n)` is the expected number of pinned rows among the n hottest.
    #[must_use]
    pub fn expected(skew: &Skew, pinned: impl Fn(u64) -> f64) -> Self {
        let (mut end, mut before) = (0, 0.0);
        let per_bin = skew.bins().iter().map(|bin| {
            end += bin.rows;
            let all = pinned(end);
            let here = all - before;
            before = all;
            here
        });
        Self { per_bin: per_bin.collect() }
    }

    /// The number of pinned rows in each bin of the skew, hottest bin first.
    #[must_use]
    pub fn per_bin(&self) -> &[f64] {
        &self.per_bin
    }

    /// The number of pinned rows in all bins.
    #[must_use]
    pub fn rows(&self) -> f64 {
        self.per_bin.iter().sum()
    }

    /// The share of lookups whose row is pinned, 0 to 1.
    #[must_use]
    pub fn hit_rate(&self, skew: &Skew) -> f64 {
        skew.bins().iter().zip(&self.per_bin).map(|(bin, rows)| bin.probability * rows).sum()
    }
}

/// A cache of sets of 32 ways that holds pinned rows only ([`Policy::Static`](crate::Policy::Static)).
///
/// Example: the [module](crate::scars::sets).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PinnedCache {
    /// Sets of the cache.
    pub sets: u32,
    /// Number of ways of a set that may be pinned, 1 to 32.
    pub pinned_ways: u32,
    /// The pinned rows, hottest first, if the rows are known; else empty, and [`PinnedCache::rows_by_rank`] gives them.
    pub rows: Vec<u32>,
    /// The number of pinned rows in each bin.
    pub pinned: PinnedRows,
    /// Number, known or expected, of the hottest rows that find no way. As many hottest rows are taken as ways may be pinned.
    pub left_out: f64,
}

impl PinnedCache {
    /// The cache for known rows: `ranked`, hottest first, of a table of `rows` rows. It has as many whole sets as `wanted` rows fill, but
    /// no more than the table fills.
    #[must_use]
    pub fn known(skew: &Skew, ranked: &[u32], rows: u32, wanted: u64, pinned_ways: u32) -> Self {
        let sets = whole_sets(wanted, pinned_ways, rows);
        let seated = seated(ranked, sets, pinned_ways);
        let hottest = (sets as usize * pinned_ways as usize).min(ranked.len());
        Self {
            sets,
            pinned_ways,
            rows: seated.iter().map(|&rank| ranked[rank]).collect(),
            pinned: PinnedRows::known(skew, &seated),
            left_out: (hottest - seated.partition_point(|&rank| rank < hottest)) as f64,
        }
    }

    /// As [`PinnedCache::known`], for rows of which only a distribution is known. [`expected_fit`] gives the expected pinned rows.
    #[must_use]
    pub fn expected(skew: &Skew, rows: u32, wanted: u64, pinned_ways: u32) -> Self {
        let sets = whole_sets(wanted, pinned_ways, rows);
        let hottest = (u64::from(sets) * u64::from(pinned_ways)).min(rows.into());
        // Without a set no row finds a way.
        let pinned = |rows| if sets == 0 { 0.0 } else { expected_fit(rows, sets, pinned_ways) };
        Self {
            sets,
            pinned_ways,
            rows: Vec::new(),
            pinned: PinnedRows::expected(skew, pinned),
            left_out: hottest as f64 - pinned(hottest),
        }
    }

    /// The rows that are pinned if row i of a table of `rows` is the i-th hottest.
    #[must_use]
    pub fn rows_by_rank(&self, rows: u32) -> Vec<u32> {
        // Among so many rows a set has 2 ways + 40 on average. The chance that it is not full then is below 1 in 10^14.
        let enough = (u64::from(self.sets) * u64::from(2 * self.pinned_ways + 40)).min(rows.into());
        let ranked: Vec<u32> = (0..enough as u32).collect();
        seated(&ranked, self.sets, self.pinned_ways).into_iter().map(|rank| rank as u32).collect()
    }

    /// Slots of the cache: 32 a set.
    #[must_use]
    pub const fn slots(&self) -> u64 {
        self.sets as u64 * WAYS as u64
    }
}

/// The number of whole sets that `wanted` rows fill, at most those that a table of `rows` rows fills.
fn whole_sets(wanted: u64, pinned_ways: u32, rows: u32) -> u32 {
    (wanted / u64::from(pinned_ways)).min(u64::from(rows.div_ceil(WAYS))) as u32
}

/// The ranks of those `rows`, hottest first, that find one of the ways of their set that may be pinned.
fn seated(rows: &[u32], sets: u32, pinned_ways: u32) -> Vec<usize> {
    // `left_out` keeps the order of the rows, and each row occurs once.
    let mut out = left_out(rows, sets, pinned_ways).into_iter().peekable();
    (0..rows.len()).filter(|&rank| out.next_if_eq(&rows[rank]).is_none()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hottest_that_find_a_way_are_pinned() {
        let skew = Skew::from_counts((1..=1000).rev()).unwrap();
        let ranked: Vec<u32> = (0..1000).map(|row| row * 7).collect();
        let cache = PinnedCache::known(&skew, &ranked, 7000, 320, 16);
        assert_eq!((cache.sets, cache.slots()), (20, 640));
        // Each set has its 16 rows, since there are enough. Some of the 320 hottest found no way, and colder rows took their place.
        assert_eq!(cache.rows.len(), 320);
        assert!(cache.left_out > 0.0 && cache.rows[319] > 320 * 7);
        assert_eq!(cache.pinned.rows(), 320.0);
        let colder = cache.pinned.per_bin[320..].iter().sum::<f64>();
        assert_eq!(colder, cache.left_out);
        // No row is twice in a bin of one row.
        assert!(cache.pinned.per_bin.iter().all(|&rows| rows <= 1.0));
    }

    #[test]
    fn expectations_are_near_what_is_known() {
        let skew = Skew::zipf(100_000, 1.0).unwrap();
        let expected = PinnedCache::expected(&skew, 100_000, 8000, 32);
        let rows = expected.rows_by_rank(100_000);
        assert_eq!((expected.slots(), rows.len()), (8000, 8000));
        assert!((expected.pinned.rows() - 8000.0).abs() < 1e-6);
        let ranks: Vec<usize> = rows.iter().map(|&row| row as usize).collect();
        let known = PinnedRows::known(&skew, &ranks);
        let hit_rate = expected.pinned.hit_rate(&skew);
        assert!((known.hit_rate(&skew) / hit_rate - 1.0).abs() < 1e-3);
        assert!(hit_rate < 0.999 * skew.mass(8000), "what finds no way is missed");
        let left = rows.partition_point(|&row| row < 8000) as f64;
        assert!((8000.0 - left - expected.left_out).abs() < 0.2 * expected.left_out, "{left} {}", expected.left_out);
    }

    #[test]
    fn no_cache_pins_nothing_and_a_small_table_fits_whole() {
        let skew = Skew::from_counts([5, 3, 1]).unwrap();
        let none = PinnedCache::known(&skew, &[9, 4, 2], 10, 0, 32);
        assert_eq!((none.slots(), none.rows.len(), none.pinned.rows()), (0, 0, 0.0));
        let too_few = PinnedCache::known(&skew, &[9, 4, 2], 10, 31, 32);
        assert_eq!((too_few.slots(), too_few.pinned.rows()), (0, 0.0), "no whole set");
        let all = PinnedCache::known(&skew, &[9, 4, 2], 10, 99, 32);
        assert_eq!((all.slots(), all.rows.as_slice(), all.left_out), (32, &[9, 4, 2][..], 0.0));
        let law = Skew::zipf(50, 1.0).unwrap();
        assert_eq!(PinnedCache::expected(&law, 50, 0, 32).pinned.rows(), 0.0);
        assert_eq!(PinnedCache::expected(&law, 50, 0, 32).rows_by_rank(50).len(), 0);
    }
}
