//! What is measured: one table, and batches with a chosen share of hot rows.

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Sizes of a sweep. A tenth of the rows fits the cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Rows of the table.
    pub(crate) rows: u32,
    /// Floats in a row.
    pub(crate) dim: u32,
    /// Accesses in a batch, all to distinct rows.
    pub(crate) batch: u32,
    /// Accesses in a bag, summed.
    pub(crate) bag: u32,
}

impl Shape {
    /// TBE's benchmark rows (dim 128, bags of 20); the table is far larger than any cache on the chip.
    pub(crate) const GPU: Self = Self { rows: 4_000_000, dim: 128, batch: 160_000, bag: 20 };
    /// The same, small enough for a sweep of 20 seconds on two cores, and larger than their caches.
    pub(crate) const CPU: Self = Self { rows: 200_000, dim: 128, batch: 4_000, bag: 20 };
    /// What a software driver gets through in that time.
    pub(crate) const SOFTWARE: Self = Self { rows: 50_000, dim: 128, batch: 1_000, bag: 20 };

    /// Rows the cache holds.
    pub(crate) const fn cache_rows(&self) -> u32 {
        self.rows / 10
    }

    /// Bags of a batch.
    pub(crate) const fn bags(&self) -> u32 {
        self.batch.div_ceil(self.bag)
    }

    /// Starts of the bags; the last may be shorter.
    pub(crate) fn offsets(&self) -> Vec<u32> {
        (0..=self.bags()).map(|bag| (bag * self.bag).min(self.batch)).collect()
    }

    /// TBE's measure of forward: output bytes + 4 * dim * accesses. Backward counts twice that.
    pub(crate) const fn logical_bytes(&self) -> u64 {
        4 * self.dim as u64 * (self.bags() as u64 + self.batch as u64)
    }
}

/// An endless stream of batches whose accesses hit with a chosen rate.
///
/// The hot rows are in every batch, so they stay under LRU and lead under LFU. The cold ones are walked through in a random
/// order, the whole table before any comes again.
#[derive(Debug)]
pub(crate) struct Stream {
    shape: Shape,
    hot: Vec<u32>,
    cold: Vec<u32>,
    next: usize,
    random: Pcg64,
}

impl Stream {
    pub(crate) fn new(shape: Shape, seed: u32) -> Self {
        let mut random = Pcg64::seed_from_u64(u64::from(seed));
        let mut rows: Vec<u32> = (0..shape.rows).collect();
        rows.shuffle(&mut random);
        let hot = rows.split_off(rows.len() - (shape.batch.min(shape.rows / 2)) as usize);
        Self { shape, hot, cold: rows, next: 0, random }
    }

    /// A batch of which `hot_share` go to hot rows.
    pub(crate) fn batch(&mut self, hot_share: f64) -> Vec<u32> {
        let hot = (f64::from(self.shape.batch) * hot_share).round() as usize;
        let mut rows = Vec::with_capacity(self.shape.batch as usize);
        rows.extend(self.hot.iter().cycle().take(hot));
        for _ in hot..self.shape.batch as usize {
            rows.push(self.cold[self.next % self.cold.len()]);
            self.next += 1;
        }
        // In random order: a bag mixes hot and cold.
        for i in (1..rows.len()).rev() {
            rows.swap(i, self.random.random_range(0..=i));
        }
        rows
    }
}
