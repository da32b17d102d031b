//! The cache of all virtual shards, replayed without its rows: which slots are dirty.

use super::super::distribution::Distribution;
use hotrow::scars::Skew;
use hotrow::simulate::{GeometryError, Simulator};
use hotrow::{Policy, WAYS};
use rand::SeedableRng;
use rand_pcg::Pcg64;

/// The cache of a group over all ranks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cache {
    pub(super) policy: Policy,
    /// Rows asked for; 0: no cache.
    pub(super) rows: u32,
    /// Virtual shards.
    pub(super) shards: u32,
}

impl Cache {
    /// Sets of each shard (SPEC 11).
    pub(super) const fn sets_of_shard(&self) -> u32 {
        self.rows.div_ceil(WAYS * self.shards)
    }

    pub(super) fn slots(&self) -> u64 {
        u64::from(self.sets_of_shard()) * u64::from(self.shards) * u64::from(WAYS)
    }

    /// The cache without a row, or, if the policy is static, with as many of the `hottest` rows pinned as find a way; `None` without a
    /// cache.
    pub(super) fn replay(&self, hottest: &[u32]) -> Result<Option<Simulator>, GeometryError> {
        if self.rows == 0 {
            return Ok(None);
        }
        let sets = self.sets_of_shard() * self.shards;
        let mut cache = Simulator::new(sets, WAYS, self.policy)?.with_shards(self.shards)?;
        if self.policy == Policy::Static {
            cache.pin(&hottest[..hottest.len().min(self.slots() as usize)], WAYS);
        }
        Ok(Some(cache))
    }
}

/// The share of `steps` steps, the first of a new group, that begin with a row's slot dirty; rows without an entry are never dirty.
pub(super) type DirtyShare = Vec<(u32, f64)>;

/// Runs so many steps of independent lookups, unless the policy is static, for which a formula has the expected value.
pub(super) fn expected(
    cache: &Cache,
    from: &Distribution,
    skew: &Skew,
    lookups: usize,
    steps: u64,
    seed: u64,
) -> anyhow::Result<DirtyShare> {
    let hottest: Vec<u32> = (0..cache.slots().min(from.rows) as u32).collect();
    let Some(mut replay) = cache.replay(&hottest)? else { return Ok(Vec::new()) };
    if cache.policy == Policy::Static {
        // Every pinned row is in its slot; one step makes all of them dirty.
        replay.step(&hottest);
        replay.backward();
        return Ok(replay
            .dirty_rows()
            .map(|row| (row, used_before(skew, row, lookups as f64, steps as f64)))
            .collect());
    }
    let mut random = Pcg64::seed_from_u64(seed);
    let mut times = std::collections::HashMap::<u32, u64>::new();
    for _ in 0..steps {
        replay.dirty_rows().for_each(|row| *times.entry(row).or_default() += 1);
        replay.step(&from.draw(lookups, &mut random)?);
        replay.backward();
    }
    let mut shares: DirtyShare = times.into_iter().map(|(row, n)| (row, n as f64 / steps as f64)).collect();
    // The order of a map is random, and sums of floats depend on it.
    shares.sort_unstable_by_key(|&(row, _)| row);
    Ok(shares)
}

/// The mean over the first `steps` steps of the probability that a row was used in an earlier one.
fn used_before(skew: &Skew, row: u32, lookups: f64, steps: f64) -> f64 {
    let absent = (lookups * (-skew.probability(row.into())).ln_1p()).exp();
    // 1 - (1 + a + a^2 + ..) / steps, for a = 1 without its quotient.
    if absent < 1.0 { 1.0 - (1.0 - absent.powf(steps)) / (1.0 - absent) / steps } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_round_up_to_whole_sets() {
        let cache = |rows, shards| Cache { policy: Policy::Lru, rows, shards };
        assert_eq!(
            [cache(1, 1), cache(33, 1), cache(33, 8), cache(257, 8)].map(|cache| cache.slots()),
            [32, 64, 256, 512]
        );
        assert!(cache(0, 8).replay(&[]).unwrap().is_none());
    }

    #[test]
    fn the_first_step_is_clean() {
        let skew = Skew::uniform(4).unwrap();
        // Of 3 lookups one row is absent with probability 27/64.
        let absent = 27.0_f64 / 64.0;
        for (steps, wanted) in [(1.0, 0.0), (2.0, (1.0 - absent) / 2.0), (3.0, (2.0 - absent - absent * absent) / 3.0)]
        {
            let found = used_before(&skew, 1, 3.0, steps);
            assert!((found - wanted).abs() < 1e-12, "{steps}: {found}, wanted {wanted}");
        }
        assert_eq!(used_before(&skew, 7, 3.0, 5.0), 0.0, "a row that is never used");
    }

    /// A row that fits is dirty in every step after its first use, under every policy.
    #[test]
    fn replay_and_formula_agree_where_all_rows_fit() {
        let from: Distribution = "zipf:rows=200,s=1".parse().unwrap();
        let skew = from.skew().unwrap();
        let sum = |policy, rows| -> f64 {
            let cache = Cache { policy, rows, shards: 2 };
            expected(&cache, &from, &skew, 50, 400, 5).unwrap().iter().map(|(_, share)| share).sum()
        };
        let formula = sum(Policy::Static, 1000);
        assert!(formula > 150.0, "{formula}");
        for policy in [Policy::Lru, Policy::Lfu] {
            let replayed = sum(policy, 1000);
            assert!((replayed / formula - 1.0).abs() < 0.01, "{policy}: {replayed}, wanted {formula}");
            assert!((sum(policy, 100) / formula - 1.0).abs() > 0.2, "a cache that is too small");
        }
    }
}
