//! The rows that are pinned. They are hashed into sets of the cache, which hold a limited number of them: some rows find no way, and colder rows take
//! the free ways of other sets.

use crate::scars::skew::Skew;
use hotrow::{WAYS, hash::fmix32};

/// The pinned rows of a cache of sets of 32 ways that holds no others ([`Policy::Static`](hotrow::Policy::Static)), known or expected.
///
/// Example: the [module](crate::scars).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Pinned {
    /// Sets of the cache.
    pub sets: u32,
    /// The pinned rows, hottest first, if the rows are known; else empty, and [`Pinned::by_rank`] gives them.
    pub rows: Vec<u32>,
    /// Number, known or expected, of the hottest rows that find no way. As many hottest rows are taken as ways may be pinned.
    pub left_out: f64,
    per_bin: Vec<f64>,
}

impl Pinned {
    /// No row is pinned.
    #[must_use]
    pub fn none(skew: &Skew) -> Self {
        Self { sets: 0, rows: Vec::new(), left_out: 0.0, per_bin: vec![0.0; skew.bins().len()] }
    }

    /// Of known rows, `ranked` from the hottest on, those that find one of the `ways` ways of their set that may be pinned.
    #[must_use]
    pub fn known(skew: &Skew, ranked: &[u32], sets: u32, ways: u32) -> Self {
        let seated = seated(ranked, sets, ways);
        let hottest = (sets as usize * ways as usize).min(ranked.len());
        let (mut ranks, mut end) = (seated.iter().map(|&rank| rank as u64).peekable(), 0);
        let per_bin = skew.bins().iter().map(|bin| {
            end += bin.0;
            std::iter::from_fn(|| ranks.next_if(|&rank| rank < end)).count() as f64
        });
        Self {
            sets,
            per_bin: per_bin.collect(),
            rows: seated.iter().map(|&rank| ranked[rank]).collect(),
            left_out: (hottest - seated.partition_point(|&rank| rank < hottest)) as f64,
        }
    }

    /// As [`Pinned::known`], for rows of which only a distribution is known: the expected number in each bin.
    #[must_use]
    pub fn expected(skew: &Skew, sets: u32, ways: u32) -> Self {
        // Without a set no row finds a way.
        let pinned = |rows| if sets == 0 { 0.0 } else { expected_fit(rows, sets, ways) };
        let (mut end, mut before) = (0, 0.0);
        let per_bin = skew.bins().iter().map(|bin| {
            end += bin.0;
            let all = pinned(end);
            let here = all - before;
            before = all;
            here
        });
        let hottest = (u64::from(sets) * u64::from(ways)).min(skew.rows());
        Self { sets, rows: Vec::new(), left_out: hottest as f64 - pinned(hottest), per_bin: per_bin.collect() }
    }

    /// The rows that are pinned if row i is the i-th hottest.
    #[must_use]
    pub fn by_rank(skew: &Skew, sets: u32, ways: u32) -> Self {
        // Among so many rows a set has 2 ways + 40 on average. The chance that it is not full then is below 1 in 10^14.
        let enough = (u64::from(sets) * u64::from(2 * ways + 40)).min(skew.rows());
        Self::known(skew, &(0..enough as u32).collect::<Vec<_>>(), sets, ways)
    }

    /// The number, known or expected, of pinned rows in each bin of the skew, hottest bin first.
    #[must_use]
    pub fn per_bin(&self) -> &[f64] {
        &self.per_bin
    }

    /// The number of pinned rows in all bins.
    #[must_use]
    pub fn count(&self) -> f64 {
        self.per_bin.iter().sum()
    }

    /// The share of lookups whose row is pinned, 0 to 1.
    #[must_use]
    pub fn hit_rate(&self, skew: &Skew) -> f64 {
        skew.bins().iter().zip(&self.per_bin).map(|(bin, rows)| bin.1 * rows).sum()
    }

    /// Slots of the cache: 32 a set.
    #[must_use]
    pub const fn slots(&self) -> u64 {
        self.sets as u64 * WAYS as u64
    }
}

/// The ranks of those `rows`, hottest first, that fit into a cache of `sets` sets: each set takes its first `ways` rows. The cache's own hash,
/// `set = fmix32(row) mod sets`.
fn seated(rows: &[u32], sets: u32, ways: u32) -> Vec<usize> {
    let mut taken = vec![0u32; sets as usize];
    let finds_way = |rank: &usize| {
        let Some(set) = fmix32(rows[*rank]).checked_rem(sets) else { return false };
        let taken = &mut taken[set as usize];
        *taken += u32::from(*taken <= ways);
        *taken <= ways
    };
    (0..rows.len()).filter(finds_way).collect()
}

/// The expected number of `rows` rows that fit into their sets: `sets E[min(X, ways)]`, where X, the rows of a set, is `Binomial(rows, 1/sets)`. Hashes are
/// taken as independent and uniform over the sets.
fn expected_fit(rows: u64, sets: u32, ways: u32) -> f64 {
    if sets < 2 {
        return (u64::from(sets) * u64::from(ways)).min(rows) as f64;
    }
    // By logarithms, because the probability of an empty set may underflow where later ones do not.
    let (mut log, mut short) = (rows as f64 * (-1.0 / f64::from(sets)).ln_1p(), 0.0);
    for taken in 0..ways {
        short += f64::from(ways - taken) * log.exp();
        let left = rows.saturating_sub(u64::from(taken)) as f64;
        log += (left / (f64::from(taken) + 1.0) / (f64::from(sets) - 1.0)).ln();
    }
    (f64::from(sets) * (f64::from(ways) - short)).clamp(0.0, rows as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scars::law::Formula;

    /// The expected fit from the distribution of one set's load, updated row by row.
    fn slow(rows: usize, sets: u32, ways: u32) -> f64 {
        let mut load = vec![0.0; rows + 2];
        load[0] = 1.0;
        for _ in 0..rows {
            for taken in (0..=rows).rev() {
                let from_below = if taken > 0 { load[taken - 1] } else { 0.0 };
                load[taken] = load[taken] * (1.0 - 1.0 / f64::from(sets)) + from_below / f64::from(sets);
            }
        }
        f64::from(sets) * (0..=rows).map(|taken| load[taken] * taken.min(ways as usize) as f64).sum::<f64>()
    }

    #[test]
    fn expected_rows_are_those_of_a_set_filled_row_by_row() {
        for sets in [1, 2, 3, 10, 1000] {
            for ways in [0, 1, 2, 31, 32, 900] {
                for rows in [0u64, 1, 5, 40, 200] {
                    let (found, wanted) = (expected_fit(rows, sets, ways), slow(rows as usize, sets, ways));
                    let off = (found - wanted).abs() / (1.0 + wanted);
                    assert!(off < 1e-8, "{rows} {sets} {ways}: {found}, wanted {wanted}");
                }
            }
        }
        assert!((expected_fit(40, 3, 2) - slow(40, 3, 3)).abs() > 1.0, "a way more is seen");
        assert!((expected_fit(5, 10, 1) - slow(6, 10, 1)).abs() > 0.1, "a row more is seen");
        // Where sets get thousands of rows, the probability of an empty set underflows.
        assert!((expected_fit(2_000_000, 1000, 1024) - 1_024_000.0).abs() < 1e-3);
    }

    #[test]
    fn the_hottest_that_find_a_way_are_pinned() {
        let skew = Skew::from_bins((1..=1000).map(|count| (count, 1))).unwrap();
        let ranked: Vec<u32> = (0..1000).map(|row| row * 7).collect();
        let cache = Pinned::known(&skew, &ranked, 20, 16);
        assert_eq!((cache.sets, cache.slots()), (20, 640));
        // Each set has its 16 rows, since there are enough. Some of the 320 hottest found no way, and colder rows took their place.
        assert_eq!((cache.rows.len(), cache.count()), (320, 320.0));
        assert!(cache.left_out > 0.0 && cache.rows[319] > 320 * 7);
        assert_eq!(cache.per_bin[320..].iter().sum::<f64>(), cache.left_out);
        for (rank, row) in ranked.iter().enumerate() {
            let hotter = ranked[..rank].iter().filter(|other| fmix32(**other) % 20 == fmix32(*row) % 20).count();
            assert_eq!(cache.rows.contains(row), hotter < 16, "row {row}");
            assert_eq!(cache.per_bin[rank] == 1.0, hotter < 16, "each bin has one row");
        }
    }

    #[test]
    fn expectations_are_near_what_is_known() {
        let skew = Skew::of(Formula::Zipf(1.0), 100_000).unwrap();
        let (expected, known) = (Pinned::expected(&skew, 250, 32), Pinned::by_rank(&skew, 250, 32));
        assert_eq!((expected.slots(), known.rows.len()), (8000, 8000));
        assert!((expected.count() - 8000.0).abs() < 1e-6);
        let hit_rate = expected.hit_rate(&skew);
        assert!((known.hit_rate(&skew) / hit_rate - 1.0).abs() < 1e-3);
        assert!(hit_rate < 0.999 * skew.mass(8000), "what finds no way is missed");
        let off = known.left_out / expected.left_out - 1.0;
        assert!(off.abs() < 0.2, "{off}");
    }

    #[test]
    fn no_cache_pins_nothing_and_a_small_table_fits_whole() {
        let skew = Skew::from_bins([(5, 1), (3, 1), (1, 1)]).unwrap();
        assert_eq!(Pinned::known(&skew, &[9, 4, 2], 0, 32), Pinned::none(&skew));
        let all = Pinned::known(&skew, &[9, 4, 2], 1, 32);
        assert_eq!((all.slots(), all.rows.as_slice(), all.left_out, all.count()), (32, &[9, 4, 2][..], 0.0, 3.0));
        let law = Skew::of(Formula::Zipf(1.0), 50).unwrap();
        assert_eq!((Pinned::expected(&law, 0, 32).count(), Pinned::by_rank(&law, 0, 32).rows.len()), (0.0, 0));
    }
}
