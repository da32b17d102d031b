//! The table of the sweep, and batches with a chosen share of hot rows.

use crate::bench::suite::shapes::{random, shuffle};
use rand::seq::SliceRandom as _;
use rand_pcg::Pcg64;

/// Sizes of a sweep. A tenth of the rows fits the cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) rows: u32,
    /// Floats in a row.
    pub(super) dim: u32,
    /// Accesses in a batch, all to distinct rows.
    pub(super) batch: u32,
    /// Accesses in a bag, summed.
    pub(super) bag: u32,
}

impl Shape {
    /// Rows as in TBE's benchmark (dim 128, bags of 20). The table is far larger than any cache on the chip.
    pub(super) const GPU: Self = Self { rows: 4_000_000, dim: 128, batch: 160_000, bag: 20 };
    /// The same shape, small enough for a sweep of 20 seconds on two cores, and larger than their caches.
    pub(super) const CPU: Self = Self { rows: 200_000, dim: 128, batch: 4_000, bag: 20 };
    /// Small enough for a software driver, whose step shall take milliseconds too.
    pub(super) const SOFTWARE: Self = Self { rows: 50_000, dim: 128, batch: 400, bag: 20 };

    pub(super) const fn cache_rows(&self) -> u32 {
        self.rows / 10
    }

    const fn bags(&self) -> u32 {
        self.batch.div_ceil(self.bag)
    }

    /// Starts of the bags; the last may be shorter.
    pub(super) fn offsets(&self) -> Vec<u32> {
        (0..=self.bags()).map(|bag| (bag * self.bag).min(self.batch)).collect()
    }

    /// TBE's measure of forward: output bytes + 4 * dim * accesses. Backward counts twice that.
    pub(super) const fn logical_bytes(&self) -> u64 {
        4 * self.dim as u64 * (self.bags() as u64 + self.batch as u64)
    }
}

/// An endless stream of batches with a chosen hit rate.
///
/// The hot rows are in every batch, so LRU and LFU keep them. Cold rows come in a random order; none returns before all have come.
#[derive(Debug)]
pub(super) struct Stream {
    shape: Shape,
    hot: Vec<u32>,
    cold: Vec<u32>,
    next: usize,
    random: Pcg64,
}

impl Stream {
    pub(super) fn new(shape: Shape, seed: u32) -> Self {
        let mut random = random(0, u64::from(seed));
        let mut rows: Vec<u32> = (0..shape.rows).collect();
        rows.shuffle(&mut random);
        let hot = rows.split_off(rows.len() - (shape.batch.min(shape.rows / 2)) as usize);
        Self { shape, hot, cold: rows, next: 0, random }
    }

    /// A batch in which the share `hot_share` of the accesses goes to hot rows.
    pub(super) fn batch(&mut self, hot_share: f64) -> Vec<u32> {
        let batch = self.shape.batch as usize;
        let hot = (batch as f64 * hot_share).round() as usize;
        let cold = self.cold.iter().cycle().skip(self.next % self.cold.len());
        let mut rows: Vec<u32> = self.hot.iter().cycle().take(hot).chain(cold.take(batch - hot)).copied().collect();
        self.next += batch - hot;
        // In random order, so that a bag mixes hot and cold rows.
        shuffle(&mut rows, &mut self.random);
        rows
    }
}
