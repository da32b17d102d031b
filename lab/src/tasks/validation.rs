//! A task that is tested on a part of its training samples, which it does not train on: for choices, such as rates, that the test set must not see.

use crate::batch::Batch;
use crate::dense::Dense;
use crate::order::Mixed;
use crate::task::{About, Task};
use std::ops::Range;

/// Samples that lie together: neighbours of a text, or of a log, are alike.
const BLOCK: u64 = 64;

/// One block in so many is tested on.
const ONE_IN: u64 = 10;

pub(super) struct Validation {
    task: Box<dyn Task>,
    about: About,
}

impl Validation {
    pub(super) fn of(task: Box<dyn Task>) -> Self {
        let about = task.about().clone();
        let test = (about.train as u64 / (ONE_IN * BLOCK) * BLOCK) as usize;
        let (train, source) =
            (about.train - test, format!("{}; tested on {test} of its training samples", about.source));
        Self { about: About { source, train, test, bounds: None, ..about }, task }
    }
}

/// The place among all training samples of the `k`-th that is tested on: the last block of ten.
const fn tested(k: u64) -> u64 {
    (k / BLOCK * ONE_IN + ONE_IN - 1) * BLOCK + k % BLOCK
}

/// The place of the `k`-th of the others. Those behind the last ten blocks are trained on.
const fn trained(k: u64, test: u64) -> u64 {
    let before = k / (BLOCK * (ONE_IN - 1)) * BLOCK;
    k + if before < test { before } else { test }
}

impl Task for Validation {
    fn about(&self) -> &About {
        &self.about
    }

    fn mixed(&self) -> Mixed {
        self.task.mixed()
    }

    fn crc(&self) -> Option<u32> {
        self.task.crc()
    }

    fn train_batch(&self, samples: &[u64], seed: u64, epoch: u32) -> anyhow::Result<Batch> {
        let places: Vec<u64> = samples.iter().map(|&k| trained(k, self.about.test as u64)).collect();
        self.task.train_batch(&places, seed, epoch)
    }

    fn test_batch(&self, samples: Range<usize>) -> anyhow::Result<Batch> {
        let places: Vec<u64> = samples.map(|k| tested(k as u64)).collect();
        self.task.train_batch(&places, u64::MAX, 0)
    }

    fn dense(&self, dim: usize) -> Box<dyn Dense> {
        self.task.dense(dim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_sample_is_trained_and_tested_on() {
        for count in [0, 63, 640, 641, 6400, 10_007] {
            let small = Box::new(crate::tasks::small([count, 10], 3));
            let task = Validation::of(small);
            let &About { train, test, .. } = task.about();
            let mut all: Vec<u64> = (0..train as u64).map(|k| trained(k, test as u64)).collect();
            all.extend((0..test as u64).map(tested));
            assert_eq!(test, count / 640 * 64, "{count}");
            all.sort_unstable();
            assert!(all.into_iter().eq(0..count as u64), "{count}");
        }
        // Samples of the task's training set, not of its test set.
        let whole = crate::tasks::small([1300, 10], 3);
        let task = Validation::of(Box::new(crate::tasks::small([1300, 10], 3)));
        let text = |batch: Batch| format!("{batch:?}");
        let same = |places: Range<u64>| text(whole.train_batch(&places.collect::<Vec<_>>(), 0, 0).unwrap());
        assert_eq!(text(task.test_batch(0..64).unwrap()), same(576..640));
        assert_eq!(
            text(task.train_batch(&[575, 576], 0, 0).unwrap()),
            text(whole.train_batch(&[575, 640], 0, 0).unwrap())
        );
        assert_ne!(text(task.test_batch(0..10).unwrap()), text(whole.test_batch(0..10).unwrap()));
    }
}
