//! Who uses which part of the cache: P3's Figure 4, and the share of samples that need nothing else.

use super::fit::Pinned;
use hotrow::scars::{HotRows, Samples, Skew};
use rand::Rng;
use rand::seq::index;
use serde::Serialize;

/// Samples that are drawn, as in P3.
const DRAWN: usize = 1024;

/// Parts of the pinned rows, hottest first.
const PARTS: usize = 4;

/// Its fields are part of the schema of `--json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Portions {
    /// Samples drawn.
    pub(super) samples: u64,
    /// How many of them use each quarter of the pinned rows, the hottest first: counted in a trace, expected of a distribution.
    pub(super) users: [f64; PARTS],
    /// Of all samples, the share whose rows are all pinned.
    pub(super) hot_share: f64,
}

/// Counts in the samples of a trace; `pinned` are the rows, hottest first.
pub(super) fn counted(samples: &[&[u32]], pinned: &[u32], random: &mut impl Rng) -> Portions {
    let drawn = index::sample(random, samples.len(), DRAWN.min(samples.len()));
    let quarters: Vec<HotRows> = (0..PARTS).map(|part| HotRows::new(&pinned[bounds(pinned.len(), part)])).collect();
    let drawn: Vec<&[u32]> = drawn.iter().map(|at| samples[at]).collect();
    let uses = |rows: &HotRows| drawn.iter().filter(|sample| sample.iter().any(|&row| rows.has(row))).count() as f64;
    let all = HotRows::new(pinned);
    let mut kinds = Samples::default();
    for sample in samples {
        let kind = if all.has_all(sample.iter().copied()) { &mut kinds.hot } else { &mut kinds.normal };
        *kind += 1;
    }
    Portions {
        samples: drawn.len() as u64,
        users: std::array::from_fn(|part| uses(&quarters[part])),
        hot_share: kinds.hot_share(),
    }
}

/// Expected of a distribution, `lookups` a sample, each by itself.
pub(super) fn expected(skew: &Skew, pinned: &Pinned, lookups: f64, samples: u64) -> Portions {
    let drawn = samples.min(DRAWN as u64);
    let quarter = pinned.rows() / PARTS as f64;
    let (mut before, mut masses) = (0.0, [0.0; PARTS]);
    for (bin, &rows) in skew.bins().iter().zip(&pinned.of_bin) {
        for (part, mass) in masses.iter_mut().enumerate() {
            // What of the bin's pinned rows lies in this quarter.
            let (from, to) = (part as f64 * quarter, (part + 1) as f64 * quarter);
            *mass += bin.probability * (to.min(before + rows) - from.max(before)).max(0.0);
        }
        before += rows;
    }
    let users = masses.map(|mass| drawn as f64 * -(lookups * (-mass).ln_1p()).exp_m1());
    Portions { samples: drawn, users, hot_share: masses.iter().sum::<f64>().min(1.0).powf(lookups) }
}

/// Where a part begins and ends among `rows`.
fn bounds(rows: usize, part: usize) -> std::ops::Range<usize> {
    let end = |part: usize| (rows as u128 * part as u128 / PARTS as u128) as usize;
    end(part)..end(part + 1)
}

#[cfg(test)]
mod tests {
    use super::super::fit::Cache;
    use super::*;
    use rand::SeedableRng;
    use rand_pcg::Pcg64;

    #[test]
    fn quarters_are_counted() {
        let samples: Vec<&[u32]> = vec![&[10, 20], &[10, 10], &[30, 99], &[99], &[], &[40, 10]];
        let found = counted(&samples, &[10, 20, 30, 40], &mut Pcg64::seed_from_u64(0));
        // Hot: the first, second, fifth and sixth.
        assert_eq!(found, Portions { samples: 6, users: [3.0, 1.0, 1.0, 1.0], hot_share: 4.0 / 6.0 });
        let none = counted(&samples, &[], &mut Pcg64::seed_from_u64(0));
        assert_eq!((none.users, none.hot_share), ([0.0; 4], 1.0 / 6.0), "an empty sample needs nothing");
    }

    #[test]
    fn expectations_are_near_counts() {
        let skew = Skew::zipf(4096, 1.1).unwrap();
        let law: super::super::distribution::Distribution = "zipf:rows=4096,s=1.1".parse().unwrap();
        let cache = Cache::expected(&skew, 4096, 640, 32);
        let drawn = law.draw(30_000, &mut Pcg64::seed_from_u64(1)).unwrap();
        let samples: Vec<&[u32]> = drawn.chunks(3).collect();
        let counted = counted(&samples, &cache.rows_of(4096), &mut Pcg64::seed_from_u64(2));
        let expected = expected(&skew, &cache.pinned, 3.0, 10_000);
        for (found, wanted) in counted.users.iter().zip(expected.users) {
            // Five standard deviations of a count among 1,024.
            assert!(
                (found - wanted).abs() < 5.0 * (wanted * (1.0 - wanted / 1024.0)).sqrt(),
                "{found}, wanted {wanted}"
            );
        }
        assert!((counted.hot_share - expected.hot_share).abs() < 0.03, "{counted:?} {expected:?}");
        assert!(expected.users[0] > 2.0 * expected.users[3]);
    }
}
