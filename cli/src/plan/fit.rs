//! Which of the hottest rows are pinned: a set of the cache has only so many ways, so some find none, and colder rows take what is
//! free elsewhere.

use hotrow::internals::layout::WAYS;
use hotrow::scars::{Skew, expected_fit, left_out};

/// How many rows of each of a skew's bins are pinned.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pinned {
    pub(super) of_bin: Vec<f64>,
}

impl Pinned {
    pub(super) fn none(skew: &Skew) -> Self {
        Self { of_bin: vec![0.0; skew.bins().len()] }
    }

    /// Of rows that are known: the ranks of the pinned ones.
    pub(super) fn known(skew: &Skew, ranks: &[usize]) -> Self {
        let mut ranks = ranks.iter().map(|&rank| rank as u64).peekable();
        let mut end = 0;
        let of_bin = skew.bins().iter().map(|bin| {
            end += bin.rows;
            std::iter::from_fn(|| ranks.next_if(|&rank| rank < end)).count() as f64
        });
        Self { of_bin: of_bin.collect() }
    }

    /// Of a law: `seats(n)`, the expected number among the n hottest.
    pub(super) fn expected(skew: &Skew, seats: impl Fn(u64) -> f64) -> Self {
        let (mut end, mut before) = (0, 0.0);
        let of_bin = skew.bins().iter().map(|bin| {
            end += bin.rows;
            let all = seats(end);
            let here = all - before;
            before = all;
            here
        });
        Self { of_bin: of_bin.collect() }
    }

    /// All of them.
    pub(super) fn rows(&self) -> f64 {
        self.of_bin.iter().sum()
    }

    /// The share of lookups that ask for one of them.
    pub(super) fn mass(&self, skew: &Skew) -> f64 {
        skew.bins().iter().zip(&self.of_bin).map(|(bin, rows)| bin.probability * rows).sum()
    }
}

/// The cache of a plan: its sets, and who is pinned in it.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    pub(super) sets: u32,
    share: u32,
    /// Of a trace: the pinned rows, hottest first. Of a law see [`Cache::rows_of`].
    pub(super) rows: Vec<u32>,
    pub(super) pinned: Pinned,
    /// Of as many hottest rows as may be pinned, those that find no way.
    pub(super) left_out: f64,
}

impl Cache {
    /// Whole sets of `share` rows that `wanted` rows fill; of a table of `rows`, no more sets than hold it.
    fn sets(wanted: u64, share: u32, rows: u32) -> u32 {
        (wanted / u64::from(share)).min(u64::from(rows.div_ceil(WAYS))) as u32
    }

    /// For rows in order of hotness: who is pinned is known.
    pub(super) fn known(skew: &Skew, ranked: &[u32], rows: u32, wanted: u64, share: u32) -> Self {
        let sets = Self::sets(wanted, share, rows);
        let seated = seated(ranked, sets, share);
        let hottest = (sets as usize * share as usize).min(ranked.len());
        Self {
            sets,
            share,
            rows: seated.iter().map(|&rank| ranked[rank]).collect(),
            pinned: Pinned::known(skew, &seated),
            left_out: (hottest - seated.partition_point(|&rank| rank < hottest)) as f64,
        }
    }

    /// For a law: who is pinned is expected.
    pub(super) fn expected(skew: &Skew, rows: u32, wanted: u64, share: u32) -> Self {
        let sets = Self::sets(wanted, share, rows);
        let hottest = (u64::from(sets) * u64::from(share)).min(rows.into());
        // Without a set no row finds a way.
        let seats = |rows| if sets == 0 { 0.0 } else { expected_fit(rows, sets, share) };
        Self {
            sets,
            share,
            rows: Vec::new(),
            pinned: Pinned::expected(skew, seats),
            left_out: hottest as f64 - seats(hottest),
        }
    }

    /// The pinned ones of a law's rows: row i is the i-th hottest.
    pub(super) fn rows_of(&self, rows: u32) -> Vec<u32> {
        // Of so many rows a set meets 2 `share` + 40 in the mean; that it is not full then is less likely than 1 in 10^14.
        let enough = (u64::from(self.sets) * u64::from(2 * self.share + 40)).min(rows.into());
        let ranked: Vec<u32> = (0..enough as u32).collect();
        seated(&ranked, self.sets, self.share).into_iter().map(|rank| rank as u32).collect()
    }

    pub(super) const fn slots(&self) -> u64 {
        self.sets as u64 * WAYS as u64
    }
}

/// Places among `rows`, hottest first, of those that find one of the `share` ways of their set that may be pinned.
fn seated(rows: &[u32], sets: u32, share: u32) -> Vec<usize> {
    // In the order of the rows, each of which is there once.
    let mut out = left_out(rows, sets, share).into_iter().peekable();
    (0..rows.len()).filter(|&rank| out.next_if_eq(&rows[rank]).is_none()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hottest_that_find_a_way_are_pinned() {
        let skew = Skew::from_counts((1..=1000).rev()).unwrap();
        let ranked: Vec<u32> = (0..1000).map(|row| row * 7).collect();
        let cache = Cache::known(&skew, &ranked, 7000, 320, 16);
        assert_eq!((cache.sets, cache.slots()), (20, 640));
        // Each set has its 16, since there are rows enough; some of the 320 hottest found none, and colder ones came.
        assert_eq!(cache.rows.len(), 320);
        assert!(cache.left_out > 0.0 && cache.rows[319] > 320 * 7);
        assert_eq!(cache.pinned.rows(), 320.0);
        let colder = cache.pinned.of_bin[320..].iter().sum::<f64>();
        assert_eq!(colder, cache.left_out);
        // No row twice in a bin of one.
        assert!(cache.pinned.of_bin.iter().all(|&rows| rows <= 1.0));
    }

    #[test]
    fn expectations_are_near_what_is_known() {
        let skew = Skew::zipf(100_000, 1.0).unwrap();
        let expected = Cache::expected(&skew, 100_000, 8000, 32);
        let rows = expected.rows_of(100_000);
        assert_eq!((expected.slots(), rows.len()), (8000, 8000));
        assert!((expected.pinned.rows() - 8000.0).abs() < 1e-6);
        let ranks: Vec<usize> = rows.iter().map(|&row| row as usize).collect();
        let known = Pinned::known(&skew, &ranks);
        let mass = expected.pinned.mass(&skew);
        assert!((known.mass(&skew) / mass - 1.0).abs() < 1e-3);
        assert!(mass < 0.999 * skew.mass(8000), "what finds no way is missed");
        let left = rows.partition_point(|&row| row < 8000) as f64;
        assert!((8000.0 - left - expected.left_out).abs() < 0.2 * expected.left_out, "{left} {}", expected.left_out);
    }

    #[test]
    fn no_cache_pins_nothing_and_a_small_table_fits_whole() {
        let skew = Skew::from_counts([5, 3, 1]).unwrap();
        let none = Cache::known(&skew, &[9, 4, 2], 10, 0, 32);
        assert_eq!((none.slots(), none.rows.len(), none.pinned.rows()), (0, 0, 0.0));
        let too_few = Cache::known(&skew, &[9, 4, 2], 10, 31, 32);
        assert_eq!((too_few.slots(), too_few.pinned.rows()), (0, 0.0), "no whole set");
        let all = Cache::known(&skew, &[9, 4, 2], 10, 99, 32);
        assert_eq!((all.slots(), all.rows.as_slice(), all.left_out), (32, &[9, 4, 2][..], 0.0));
        let law = Skew::zipf(50, 1.0).unwrap();
        assert_eq!(Cache::expected(&law, 50, 0, 32).pinned.rows(), 0.0);
        assert_eq!(Cache::expected(&law, 50, 0, 32).rows_of(50).len(), 0);
    }
}
