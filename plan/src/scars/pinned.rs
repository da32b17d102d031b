//! The rows that are pinned. They are spread over the sets of the cache, which hold a limited number of them: some rows find no way, and colder rows
//! take the free ways of other sets.

use crate::scars::skew::Skew;
use hotrow::{WAYS, internals::hash::Spread};

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
    /// The share of those hottest rows that find no way, 0 to 1.
    pub left_out_share: f64,
    per_bin: Vec<f64>,
}

impl Pinned {
    /// No row is pinned.
    #[must_use]
    pub fn none(skew: &Skew) -> Self {
        Self { sets: 0, rows: Vec::new(), left_out: 0.0, left_out_share: 0.0, per_bin: vec![0.0; skew.bins().len()] }
    }

    /// Of known rows, `ranked` from the hottest on, those that find one of the `ways` ways of their set that may be pinned. The skew has all rows of
    /// the tables.
    ///
    /// # Panics
    /// If a row is not below the number of the skew's rows.
    #[must_use]
    pub fn known(skew: &Skew, ranked: &[u32], sets: u32, ways: u32) -> Self {
        let rows = skew.rows().min(u64::from(u32::MAX) - 1) as u32;
        let seated = seated(ranked, rows, sets, ways);
        let hottest = (sets as usize * ways as usize).min(ranked.len());
        let left_out = (hottest - seated.partition_point(|&rank| rank < hottest)) as f64;
        let (mut ranks, mut end) = (seated.iter().map(|&rank| rank as u64).peekable(), 0);
        let per_bin = skew.bins().iter().map(|bin| {
            end += bin.0;
            std::iter::from_fn(|| ranks.next_if(|&rank| rank < end)).count() as f64
        });
        Self {
            sets,
            per_bin: per_bin.collect(),
            rows: seated.iter().map(|&rank| ranked[rank]).collect(),
            left_out,
            left_out_share: left_out / hottest.max(1) as f64,
        }
    }

    /// As [`Pinned::by_rank`], without looking at each row: the expected number in each bin. Rows that are numbered in another order, such as at random,
    /// fit less well: about 7 % of the hottest find no way among 32.
    #[must_use]
    pub fn expected(skew: &Skew, sets: u32, ways: u32) -> Self {
        let pinned = |rows| expected_fit(rows, skew.rows(), sets, ways);
        let (mut end, mut before) = (0, 0.0);
        let per_bin = skew.bins().iter().map(|bin| {
            end += bin.0;
            let all = pinned(end);
            let here = all - before;
            before = all;
            here
        });
        let hottest = (u64::from(sets) * u64::from(ways)).min(skew.rows());
        let left_out = hottest as f64 - pinned(hottest);
        let left_out_share = left_out / hottest.max(1) as f64;
        Self { sets, rows: Vec::new(), left_out, left_out_share, per_bin: per_bin.collect() }
    }

    /// The same with those of the hottest rows that find no way counted, if there are at most 2^23 and they are not known: row i is the i-th hottest.
    #[must_use]
    pub fn counted(mut self, skew: &Skew, ways: u32) -> Self {
        let hottest = (u64::from(self.sets) * u64::from(ways)).min(skew.rows());
        if self.rows.is_empty() && hottest <= 1 << 23 {
            let hottest: Vec<u32> = (0..hottest as u32).collect();
            let rows = skew.rows().min(u64::from(u32::MAX) - 1) as u32;
            self.left_out = (hottest.len() - seated(&hottest, rows, self.sets, ways).len()) as f64;
            self.left_out_share = self.left_out / hottest.len().max(1) as f64;
        }
        self
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

/// The ranks of those `ranked` rows, hottest first, that fit into a cache of `sets` sets for a table of `rows` rows: each set takes its first `ways` rows.
fn seated(ranked: &[u32], rows: u32, sets: u32, ways: u32) -> Vec<usize> {
    if sets == 0 {
        return Vec::new();
    }
    let (spread, mut taken) = (Spread::new(rows, sets, WAYS), vec![0u32; sets as usize]);
    let finds_way = |rank: &usize| {
        let row = ranked[*rank];
        assert!(row < rows, "row {row}: wanted one below {rows}, the rows of the skew");
        let taken = &mut taken[spread.set_of(row) as usize];
        *taken += u32::from(*taken <= ways);
        *taken <= ways
    };
    (0..ranked.len()).filter(finds_way).collect()
}

/// The expected number of the first `head` rows of a table that fit into their sets. Where the cache covers the table, they lie one behind another.
/// Elsewhere they are spread so evenly that a set has a row more than the mean, as many, or a row fewer, all about as often.
fn expected_fit(head: u64, rows: u64, sets: u32, ways: u32) -> f64 {
    let (slots, ways, all) = (u64::from(sets) * u64::from(WAYS), f64::from(ways), head as f64);
    if slots >= rows {
        let width = f64::from(WAYS);
        return (all / width).floor() * ways + (all % width).min(ways);
    }
    if sets == 0 {
        return 0.0;
    }
    let mean = all / f64::from(sets);
    let over = |more: f64| (mean + more - ways).max(0.0);
    let too_many = if sets == 1 { over(0.0) } else { (over(-1.0) + over(0.0) + over(1.0)) / 3.0 };
    f64::from(sets) * (mean - too_many)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scars::law::Formula;

    #[test]
    fn expected_rows_are_near_those_that_are_counted() {
        let mut worst = 0_f64;
        for rows in [100, 3000, 100_000, 1 << 20, 3_000_000, 4_000_000, 7_000_000] {
            for (sets, ways) in [1, 2, 10, 90, 700, 5000].into_iter().flat_map(|sets| [(sets, 32), (sets, 9)]) {
                let slots = sets * ways;
                for head in [slots / 8, slots / 2, slots * 9 / 10, slots, slots * 2].map(|head| head.min(rows)) {
                    let ranked: Vec<u32> = (0..head).collect();
                    let counted = seated(&ranked, rows, sets, ways).len() as f64;
                    let expected = expected_fit(head.into(), rows.into(), sets, ways);
                    let off = (expected - counted).abs() / f64::from(slots);
                    assert!(off < 0.06, "{rows} {sets} {ways} {head}: {expected}, counted {counted}");
                    worst = worst.max(off);
                    if sets * 32 >= rows || sets == 1 {
                        assert_eq!(expected, counted, "{rows} {sets} {ways} {head}: each row has its place");
                    }
                }
            }
        }
        assert!(worst > 0.01, "a hundredth is told apart: {worst}");
    }

    #[test]
    fn the_hottest_that_find_a_way_are_pinned() {
        let skew = Skew::from_bins((1..=1000).map(|count| (count, 1)).chain([(0, 6000)])).unwrap();
        let spread = Spread::new(7000, 20, 32);
        let ranked: Vec<u32> = (0..1000).map(|row| row * 7).collect();
        let cache = Pinned::known(&skew, &ranked, 20, 16);
        assert_eq!((cache.sets, cache.slots()), (20, 640));
        // Each set has its 16 rows, since there are enough. Some of the 320 hottest found no way, and colder rows took their place.
        assert_eq!((cache.rows.len(), cache.count()), (320, 320.0));
        assert!(cache.left_out > 0.0 && cache.rows[319] > 320 * 7);
        assert_eq!(cache.per_bin[320..].iter().sum::<f64>(), cache.left_out);
        for (rank, row) in ranked.iter().enumerate() {
            let hotter = ranked[..rank].iter().filter(|other| spread.set_of(**other) == spread.set_of(*row)).count();
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
        assert!(hit_rate < skew.mass(8000) - 1e-5, "what finds no way is missed: {hit_rate}");
        let off = known.left_out_share / expected.left_out_share - 1.0;
        assert!(off.abs() < 0.5 && off != 0.0 && known.left_out_share == known.left_out / 8000.0, "{off}");
        let counted = expected.counted(&skew, 32);
        assert_eq!((counted.left_out, counted.left_out_share), (known.left_out, known.left_out_share));
        // Rows in random order fit less well.
        let scattered: Vec<u32> =
            (0..100_000_u64).map(|row| (row * 70_913 * (row + 7) % 100_003) as u32 % 100_000).collect();
        let scattered = Pinned::known(&skew, &scattered, 250, 32).left_out_share;
        assert!((0.05..0.09).contains(&scattered), "{scattered}");
    }

    #[test]
    fn no_cache_pins_nothing_and_a_small_table_fits_whole() {
        let skew = Skew::from_bins([(5, 1), (3, 1), (1, 1), (0, 7)]).unwrap();
        assert_eq!(Pinned::known(&skew, &[9, 4, 2], 0, 32), Pinned::none(&skew));
        let all = Pinned::known(&skew, &[9, 4, 2], 1, 32);
        assert_eq!((all.slots(), all.rows.as_slice(), all.left_out, all.count()), (32, &[9, 4, 2][..], 0.0, 3.0));
        let law = Skew::of(Formula::Zipf(1.0), 50).unwrap();
        assert_eq!((Pinned::expected(&law, 0, 32).count(), Pinned::by_rank(&law, 0, 32).rows.len()), (0.0, 0));
    }
}
