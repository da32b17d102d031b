//! Draws the indices of batches from a seed.

use hotrow::internals::hash::Spread;
use hotrow::internals::layout::WAYS;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};
use rand_pcg::Pcg64;

/// The accesses of a step, feature by feature, in bags of `bag`.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    pub(crate) features: Vec<Vec<u32>>,
    pub(crate) bag: u32,
}

impl Batch {
    /// A batch of one feature.
    pub(crate) fn of(rows: Vec<u32>, bag: u32) -> Self {
        Self { features: vec![rows], bag }
    }

    pub(crate) fn indices(&self) -> Vec<u32> {
        self.features.concat()
    }

    /// The offsets. Every feature has the same number of bags; the last bags of a shorter feature are empty.
    pub(crate) fn offsets(&self) -> Vec<u32> {
        let bags = self.features.iter().map(|rows| rows.len().div_ceil(self.bag as usize)).max().unwrap_or(0);
        let mut offsets = vec![0];
        let mut base = 0;
        for rows in &self.features {
            let end = |bag: usize| base + (bag * self.bag as usize).min(rows.len()) as u32;
            offsets.extend((1..=bags).map(end));
            base += rows.len() as u32;
        }
        offsets
    }

    /// The number of accesses of each row. Equal indices of different features are different rows.
    pub(crate) fn repeats(&self) -> Vec<u32> {
        let mut repeats = Vec::new();
        for rows in &self.features {
            let mut sorted = rows.clone();
            sorted.sort_unstable();
            repeats.extend(sorted.chunk_by(|a, b| a == b).map(|run| run.len() as u32));
        }
        repeats
    }
}

pub(crate) fn random(seed: u32, what: u64) -> Pcg64 {
    Pcg64::seed_from_u64(u64::from(seed) << 32 | what)
}

/// Selects rows, of `all` rows, that fit a cache of `slots` together: the first 32 rows of each set.
pub(crate) fn fitting(rows: impl Iterator<Item = u32>, slots: u32, all: u32) -> Vec<u32> {
    let mut held = vec![0; (slots / WAYS) as usize];
    let spread = Spread::new(all, slots / WAYS, WAYS);
    let fits = |row: &u32| {
        let set = &mut held[spread.set_of(*row) as usize];
        *set += 1;
        *set <= WAYS
    };
    rows.filter(fits).take(slots as usize).collect()
}

/// `n` uniformly random rows of the pool.
pub(crate) fn uniform(pool: &[u32], n: usize, random: &mut Pcg64) -> Vec<u32> {
    (0..n).map(|_| pool[random.random_range(0..pool.len())]).collect()
}

/// `n` rows of the pool by Zipf's law. Ranks are shuffled, so that neighbouring rows differ in frequency.
pub(crate) fn zipf(pool: &[u32], n: usize, alpha: f64, random: &mut Pcg64) -> anyhow::Result<Vec<u32>> {
    let ranks = Zipf::new(pool.len() as f64, alpha)?;
    Ok((0..n).map(|_| pool[shuffled(ranks.sample(random) as u64 - 1, pool.len() as u64)]).collect())
}

/// A bijection of `0..n` for n below 2^31, since the multiplier is a prime above that.
pub(crate) fn shuffled(rank: u64, n: u64) -> usize {
    (rank.min(n - 1) * 2_654_435_761 % n) as usize
}

/// `n` distinct rows, scattered over the pool.
pub(crate) fn distinct(pool: &[u32], n: usize) -> Vec<u32> {
    (0..n as u64).map(|rank| pool[shuffled(rank, pool.len() as u64)]).collect()
}

/// Puts rows into random order, so that each bag mixes hot and cold rows.
pub(crate) fn shuffle(rows: &mut [u32], random: &mut Pcg64) {
    for i in (1..rows.len()).rev() {
        rows.swap(i, random.random_range(0..=i));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bags_come_feature_by_feature() {
        let batch = Batch { features: vec![vec![1, 1, 2], vec![1]], bag: 2 };
        assert_eq!(batch.indices(), [1, 1, 2, 1]);
        assert_eq!(batch.offsets(), [0, 2, 3, 4, 4]);
        assert_eq!(batch.repeats(), [2, 1, 1]);
    }

    #[test]
    fn a_pool_fits_its_cache() {
        let rows = fitting(0..10_000, 3200, 10_000);
        let (mut sets, spread) = ([0; 100], Spread::new(10_000, 100, WAYS));
        rows.iter().for_each(|row| sets[spread.set_of(*row) as usize] += 1);
        assert!(sets.iter().all(|&n| n == 32), "100 rows a set to choose from");
        let mut some = distinct(&rows, 3000);
        some.sort_unstable();
        some.dedup();
        assert_eq!(some.len(), 3000);
    }
}
