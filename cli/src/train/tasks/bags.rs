//! Bags of ids, each with a label: one table, and a fifth of the bags held out.

use crate::train::task::{About, Bags, Batch, Dense, Task};
use candle_core::Result;
use std::ops::Range;

/// The data of a task.
#[derive(Debug)]
pub(super) struct Labelled {
    pub(super) ids: Vec<u32>,
    /// Where each bag starts, and the end of the last.
    pub(super) offsets: Vec<u32>,
    pub(super) labels: Vec<u8>,
    /// Bags to train on.
    pub(super) train: Vec<u32>,
    /// Bags to test with.
    pub(super) test: Vec<u32>,
}

impl Labelled {
    fn batch(&self, bags: impl Iterator<Item = u32>) -> Batch {
        let mut batch = Batch { bags: vec![Bags::new()], ..Batch::default() };
        for bag in bags.map(|bag| bag as usize) {
            let ids = self.offsets[bag] as usize..self.offsets[bag + 1] as usize;
            batch.bags[0].push(self.ids[ids].iter().copied());
            batch.labels.push(self.labels[bag].into());
            batch.samples += 1;
        }
        batch
    }
}

/// A task of labelled bags.
pub(super) struct BagTask {
    pub(super) about: About,
    pub(super) data: Labelled,
    /// The dense part, by the table's dim and a seed.
    pub(super) dense: fn(usize, u64) -> Result<Box<dyn Dense>>,
}

impl Task for BagTask {
    fn about(&self) -> &About {
        &self.about
    }

    fn train_batch(&self, samples: &[u32], _: u64, _: u32) -> Batch {
        self.data.batch(samples.iter().map(|&sample| self.data.train[sample as usize]))
    }

    fn test_batch(&self, samples: Range<usize>) -> Batch {
        self.data.batch(self.data.test[samples].iter().copied())
    }

    fn dense(&self, seed: u64) -> Result<Box<dyn Dense>> {
        (self.dense)(self.about.tables[0].dim as usize, seed)
    }
}
