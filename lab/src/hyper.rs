//! The options of a training.

use crate::scaling::{Scaling, rate};
use anyhow::ensure;
use hotrow::{OptimizerKind, Precision, StatePrecision};
use hotrow_report::names;
use serde::{Deserialize, Serialize};

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
