//! The samples that use each quarter of the pinned rows (SCARS Figure 4), and the share of samples that need no other row.

use crate::scars::{
    hot::{HotRows, Samples},
    sets::pinned::PinnedRows,
    skew::Skew,
};

/// Number of quarters.
const QUARTERS: usize = 4;

/// The number of samples that use each quarter of the pinned rows.
///
/// ```
/// use hotrow::scars::sets::CacheQuarters;
///
/// // Four samples; rows 1 to 4 are pinned, hottest first.
/// let samples: [&[u32]; 4] = [&[1, 2], &[1, 9], &[1, 3], &[9]];
/// let found = CacheQuarters::counted(&samples, &samples, &[1, 2, 3, 4]);
/// assert_eq!((found.users, found.hot_share), ([3.0, 1.0, 1.0, 0.0], 0.5));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CacheQuarters {
    /// Number of samples drawn.
    pub samples: u64,
    /// Number, counted or expected, of drawn samples that use each quarter, the hottest quarter first.
    pub users: [f64; QUARTERS],
    /// The share of all samples whose rows are all pinned, 0 to 1.
    pub hot_share: f64,
}

impl CacheQuarters {
    /// Counts the users of each quarter in the `drawn` samples, and the hot share in all `samples`. `pinned` has the pinned rows, hottest
    /// first.
    #[must_use]
    pub fn counted(drawn: &[&[u32]], samples: &[&[u32]], pinned: &[u32]) -> Self {
        let end = |quarter: usize| (pinned.len() as u128 * quarter as u128 / QUARTERS as u128) as usize;
        let users = std::array::from_fn(|quarter| {
            let rows = HotRows::new(&pinned[end(quarter)..end(quarter + 1)]);
            drawn.iter().filter(|sample| sample.iter().any(|&row| rows.has(row))).count() as f64
        });
        let all = HotRows::new(pinned);
        let mut kinds = Samples::default();
        for sample in samples {
            let kind = if all.has_all(sample.iter().copied()) { &mut kinds.hot } else { &mut kinds.normal };
            *kind += 1;
        }
        Self { samples: drawn.len() as u64, users, hot_share: kinds.hot_share() }
    }

    /// The expected counts for `drawn` samples with `lookups` lookups each, all drawn independently.
    #[must_use]
    pub fn expected(skew: &Skew, pinned: &PinnedRows, lookups: f64, drawn: u64) -> Self {
        let quarter = pinned.rows() / QUARTERS as f64;
        let (mut before, mut masses) = (0.0, [0.0; QUARTERS]);
        for (bin, &rows) in skew.bins().iter().zip(pinned.per_bin()) {
            for (part, mass) in masses.iter_mut().enumerate() {
                // Pinned rows of the bin that lie in this quarter.
                let (from, to) = (part as f64 * quarter, (part + 1) as f64 * quarter);
                *mass += bin.probability * (to.min(before + rows) - from.max(before)).max(0.0);
            }
            before += rows;
        }
        let users = masses.map(|mass| drawn as f64 * -(lookups * (-mass).ln_1p()).exp_m1());
        Self { samples: drawn, users, hot_share: masses.iter().sum::<f64>().min(1.0).powf(lookups) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scars::sets::pinned::PinnedCache;
    use rand::SeedableRng;
    use rand_distr::{Distribution as _, Zipf};
    use rand_pcg::Pcg64;

    #[test]
    fn quarters_are_counted() {
        let samples: Vec<&[u32]> = vec![&[10, 20], &[10, 10], &[30, 99], &[99], &[], &[40, 10]];
        let found = CacheQuarters::counted(&samples, &samples, &[10, 20, 30, 40]);
        // Hot: the first, second, fifth and sixth.
        assert_eq!(found, CacheQuarters { samples: 6, users: [3.0, 1.0, 1.0, 1.0], hot_share: 4.0 / 6.0 });
        let one = CacheQuarters::counted(&samples[3..5], &samples, &[10, 20, 30, 40]);
        assert_eq!((one.samples, one.users, one.hot_share), (2, [0.0; 4], 4.0 / 6.0), "the share is of all samples");
        let none = CacheQuarters::counted(&samples, &samples, &[]);
        assert_eq!((none.users, none.hot_share), ([0.0; 4], 1.0 / 6.0), "an empty sample needs nothing");
    }

    #[test]
    fn expectations_are_near_counts() {
        let skew = Skew::zipf(4096, 1.1).unwrap();
        let cache = PinnedCache::expected(&skew, 4096, 640, 32);
        let mut random = Pcg64::seed_from_u64(1);
        let law = Zipf::new(4096.0, 1.1).unwrap();
        let lookups: Vec<u32> = (0..30_000).map(|_| law.sample(&mut random) as u32 - 1).collect();
        let samples: Vec<&[u32]> = lookups.chunks(3).collect();
        let counted = CacheQuarters::counted(&samples[..1024], &samples, &cache.rows_by_rank(4096));
        let expected = CacheQuarters::expected(&skew, &cache.pinned, 3.0, 1024);
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
