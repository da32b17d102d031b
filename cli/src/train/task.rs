//! A learning task: samples, the tables they look up, and the model above.

use candle_core::{Tensor, Var};
use hotrow::{Init, OptimizerKind, Pooling};
use std::ops::Range;

/// A table of a task.
#[derive(Clone, Debug)]
pub(crate) struct TableSpec {
    pub(crate) name: String,
    pub(crate) rows: u32,
    pub(crate) dim: u32,
    pub(crate) pooling: Pooling,
    pub(crate) init: Init,
    /// Tables of one stream have the same number of bags in every batch, so that those kept alike may share a group.
    pub(crate) stream: usize,
}

/// The lookups of a batch in one table.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Bags {
    pub(crate) indices: Vec<u32>,
    /// Where each bag starts, and the end of the last.
    pub(crate) offsets: Vec<u32>,
}

impl Bags {
    /// No bags yet.
    pub(crate) fn new() -> Self {
        Self { indices: Vec::new(), offsets: vec![0] }
    }

    /// One more bag.
    pub(crate) fn push(&mut self, indices: impl IntoIterator<Item = u32>) {
        self.indices.extend(indices);
        self.offsets.push(self.indices.len() as u32);
    }
}

/// Samples side by side.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Batch {
    /// One a table.
    pub(crate) bags: Vec<Bags>,
    /// Numbers beside the ids: `[samples, dense features]`.
    pub(crate) dense: Vec<f32>,
    /// Of each sample its class; of a binary target 0 or 1, one a logit.
    pub(crate) labels: Vec<u32>,
    pub(crate) samples: usize,
}

/// The meaning of the logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// `[samples, classes]`, of which one is right.
    Classes(usize),
    /// `[samples, n]`, each right or wrong by itself. A sample's loss is the sum over its logits.
    Binary,
}

/// How to train, but for the data and the device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Hyper {
    /// Samples in a batch.
    pub(crate) batch: usize,
    pub(crate) epochs: u32,
    /// Of the tables.
    pub(crate) optimizer: OptimizerKind,
    pub(crate) lr: f32,
    /// Of the dense part, by AdaGrad.
    pub(crate) dense_lr: f32,
    /// Both rates go down to 0, the same amount every step.
    pub(crate) decay: bool,
}

/// A task as it is: known once its data are loaded.
#[derive(Clone, Debug)]
pub(crate) struct About {
    pub(crate) name: &'static str,
    /// The data, in words for the user.
    pub(crate) source: String,
    pub(crate) tables: Vec<TableSpec>,
    pub(crate) target: Target,
    /// Where nothing else is asked for: found with FP32.
    pub(crate) hyper: Hyper,
    /// Samples to train on.
    pub(crate) train: usize,
    /// Samples to test with.
    pub(crate) test: usize,
    /// Of a planted model: the test loss of the base rate alone, and the least that can be reached.
    pub(crate) bounds: Option<[f64; 2]>,
}

/// The part of a model above its tables.
pub(crate) trait Dense {
    /// Logits of a batch as its [`Target`] has them. `embedded`: of each table `[bags, dim]`, or `[indices, dim]` with pooling none.
    fn logits(&self, embedded: &[Tensor], batch: &Batch) -> candle_core::Result<Tensor>;

    /// The trained weights.
    fn vars(&self) -> Vec<&Var>;
}

/// Data, tables and a model.
pub(crate) trait Task: Send + Sync {
    fn about(&self) -> &About;

    /// Samples by their places in the training set. What is drawn, negatives say, follows from seed, epoch and place alone.
    fn train_batch(&self, samples: &[u32], seed: u64, epoch: u32) -> Batch;

    /// The same every time.
    fn test_batch(&self, samples: Range<usize>) -> Batch;

    /// The dense part, with fresh weights from the seed.
    fn dense(&self, seed: u64) -> candle_core::Result<Box<dyn Dense>>;
}
