//! A learning task: samples, the tables that they look up, and the model above.

use crate::dense::Dense;
use crate::order::Mixed;
use crate::scaling::Scaling;
use crate::tasks::Above;
use anyhow::ensure;
use hotrow::{Init, OptimizerKind, Pooling, Precision, StatePrecision};
use hotrow_cli::names;
use serde::{Deserialize, Serialize};
use std::ops::Range;

#[derive(Clone, Debug)]
pub(crate) struct TableSpec {
    pub(crate) name: String,
    pub(crate) rows: u32,
    pub(crate) pooling: Pooling,
    /// First values. Those of `by_dim` are divided by the dim.
    pub(crate) init: Init,
    pub(crate) by_dim: bool,
    /// The stream. Tables of one stream have the same number of bags in every batch, so they may share a group.
    pub(crate) stream: usize,
}

impl TableSpec {
    /// The first values of rows of `dim` floats.
    pub(crate) fn init(&self, dim: u32) -> Init {
        match self.init {
            Init::Uniform { low, high } if self.by_dim => {
                Init::Uniform { low: low / dim as f32, high: high / dim as f32 }
            }
            init => init,
        }
    }
}

/// The lookups of a batch in one table.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Bags {
    pub(crate) indices: Vec<u32>,
    /// The start of each bag, and the end of the last one.
    pub(crate) offsets: Vec<u32>,
}

impl Bags {
    pub(crate) fn new() -> Self {
        Self { indices: Vec::new(), offsets: vec![0] }
    }

    pub(crate) fn push(&mut self, indices: impl IntoIterator<Item = u32>) {
        self.indices.extend(indices);
        self.offsets.push(self.indices.len() as u32);
    }

    /// The bags of several lists, one list after the other.
    pub(crate) fn joined<'a>(lists: impl Iterator<Item = &'a Self>) -> Self {
        let mut joined = Self::new();
        for one in lists {
            let base = joined.indices.len() as u32;
            joined.offsets.extend(one.offsets[1..].iter().map(|&offset| base + offset));
            joined.indices.extend(&one.indices);
        }
        joined
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Batch {
    pub(crate) bags: Vec<Bags>,
    /// Numbers beside the ids, `[samples, dense features]`.
    pub(crate) dense: Vec<f32>,
    /// The class of each sample; for a binary target 0 or 1 for each logit.
    pub(crate) labels: Vec<u32>,
    pub(crate) samples: usize,
}

/// The meaning of the logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Logits `[samples, classes]`, one of which is right.
    Classes(usize),
    /// Logits `[samples, n]`, each right or wrong by itself. The loss of a sample is the sum over its logits.
    Binary,
}

/// The options of a training, apart from data, end and device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Hyper {
    /// Floats in a row of each table.
    pub(crate) dim: u32,
    /// The optimiser of the tables.
    #[serde(with = "names")]
    pub(crate) optimizer: OptimizerKind,
    /// The type of the optimiser's state in tables below FP32.
    #[serde(with = "names")]
    pub(crate) state: StatePrecision,
    pub(crate) lr: f32,
    /// The learning rate of the dense part, which AdaGrad trains.
    pub(crate) dense_lr: f32,
    /// Whether both rates fall to 0 in equal steps.
    pub(crate) decay: bool,
    pub(crate) loss_scale: Scaling,
    /// What the gradients of the tables' outputs are of.
    pub(crate) loss: Reduction,
    pub(crate) batch: usize,
    /// Whether samples whose rows are all pinned are in batches of their own. No effect without pins.
    pub(crate) hot_batches: bool,
}

/// The loss of a batch: the sum over its samples, or a weight times their mean. In a state kept in FP16 squares of mean gradients would be lost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "toml::Value", into = "String")]
pub(crate) struct Reduction(pub(crate) Option<f32>);

impl From<Reduction> for String {
    fn from(Reduction(weight): Reduction) -> Self {
        weight.map_or("sum".to_owned(), |weight| if weight == 1.0 { "mean".to_owned() } else { rate(weight) })
    }
}

impl TryFrom<toml::Value> for Reduction {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Self, String> {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let weight = || text.parse().ok().filter(|weight: &f32| weight.is_finite() && *weight > 0.0).map(Some);
        let found = match text.as_str() {
            "sum" => Some(None),
            "mean" => Some(Some(1.0)),
            _ => weight(),
        };
        let wrong = || format!("loss: wanted sum, mean, or a weight of the mean above 0, found {text}");
        found.map(Self).ok_or_else(wrong)
    }
}

impl Hyper {
    /// AdaGrad with equal rates that do not fall.
    pub(crate) const fn adagrad(dim: u32, batch: usize, lr: f32) -> Self {
        let (optimizer, state, loss_scale) = (OptimizerKind::AdaGrad, StatePrecision::Fp16, Scaling(None));
        Self {
            dim,
            optimizer,
            state,
            lr,
            dense_lr: lr,
            decay: false,
            loss_scale,
            loss: Reduction(None),
            batch,
            hot_batches: false,
        }
    }

    /// The type of the optimiser's state beside weights of `precision`; `None` for the usual one. FP32 weights have FP32 states.
    pub(crate) fn state_of(&self, precision: Precision) -> Option<StatePrecision> {
        Some(self.state).filter(|&state| state != StatePrecision::Fp16 && precision != Precision::Fp32)
    }

    pub(crate) fn check(&self) -> anyhow::Result<()> {
        for (name, rate) in [("lr", self.lr), ("dense-lr", self.dense_lr)] {
            ensure!(rate.is_finite() && rate > 0.0, "{name}: wanted a finite number above 0, found {rate}");
        }
        let Self { dim, batch, .. } = *self;
        ensure!((1..=1 << 16).contains(&dim), "dim: wanted a whole number from 1 to 65536, found {dim}");
        ensure!((1..=1 << 20).contains(&batch), "batch: wanted a whole number from 1 to 1048576, found {batch}");
        Ok(())
    }
}

/// A rate as people write it: 0.02, 1, 1e20.
pub(crate) fn rate(rate: f32) -> String {
    format!("{rate:?}").trim_end_matches(".0").to_owned()
}

/// The description of a loaded task.
#[derive(Clone, Debug)]
pub(crate) struct About {
    pub(crate) name: &'static str,
    /// The model, if the task has several.
    pub(crate) model: Option<Above>,
    /// A description of the data for the user.
    pub(crate) source: String,
    pub(crate) tables: Vec<TableSpec>,
    pub(crate) target: Target,
    pub(crate) train: usize,
    pub(crate) test: usize,
    /// For generated data: the loss of predicting the base rate, and the lowest reachable loss.
    pub(crate) bounds: Option<[f64; 2]>,
}

/// Data, tables and a model.
pub(crate) trait Task: Send + Sync {
    fn about(&self) -> &About;

    /// How the samples of an epoch are mixed.
    fn mixed(&self) -> Mixed {
        Mixed::Whole
    }

    /// A CRC-32 of all samples, if it is known without reading them.
    fn crc(&self) -> Option<u32> {
        None
    }

    /// The batch of training samples at these positions. Random draws, such as negative samples, depend on seed, epoch and position only.
    fn train_batch(&self, samples: &[u64], seed: u64, epoch: u32) -> anyhow::Result<Batch>;

    /// The batch of these test samples, the same in every call.
    fn test_batch(&self, samples: Range<usize>) -> anyhow::Result<Batch>;

    /// The part of the model above tables of `dim` floats a row.
    fn dense(&self, dim: usize) -> Box<dyn Dense>;
}
