//! How the parts of a configuration are named in options and results.

use clap::ValueEnum;
use hotrow::{Optimizer, Placement, Policy, Precision, Rounding};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PrecisionName {
    Fp32,
    Fp16,
    Int8,
    Int4,
    Int2,
}

impl PrecisionName {
    pub(crate) const fn precision(self) -> Precision {
        match self {
            Self::Fp32 => Precision::Fp32,
            Self::Fp16 => Precision::Fp16,
            Self::Int8 => Precision::Int8,
            Self::Int4 => Precision::Int4,
            Self::Int2 => Precision::Int2,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RoundingName {
    /// To the nearer neighbour
    Nearest,
    /// Up with probability equal to the fraction
    Stochastic,
}

impl RoundingName {
    pub(crate) const fn rounding(self) -> Rounding {
        match self {
            Self::Nearest => Rounding::Nearest,
            Self::Stochastic => Rounding::Stochastic,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PolicyName {
    /// The row untouched for longest leaves
    Lru,
    /// The row used least leaves, for one used more
    Lfu,
}

impl PolicyName {
    pub(crate) const fn policy(self) -> Policy {
        match self {
            Self::Lru => Policy::Lru,
            Self::Lfu => Policy::Lfu,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Lru => "LRU",
            Self::Lfu => "LFU",
        }
    }
}

/// Every policy; training and benchmarks know those that admit rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CachePolicyName {
    /// The row untouched for longest leaves
    Lru,
    /// The row used least leaves, for one used more
    Lfu,
    /// The rows used most are pinned, no other ever comes
    Static,
}

impl CachePolicyName {
    pub(crate) const fn policy(self) -> Policy {
        match self {
            Self::Lru => Policy::Lru,
            Self::Lfu => Policy::Lfu,
            Self::Static => Policy::Static,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Lru => "LRU",
            Self::Lfu => "LFU",
            Self::Static => "static",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PlacementName {
    /// In GPU memory
    Device,
    /// In host memory that the shaders address
    Mapped,
    /// In the host's own memory: missing rows are gathered and sent
    Staged,
}

impl PlacementName {
    pub(crate) const fn placement(self) -> Placement {
        match self {
            Self::Device => Placement::Device,
            Self::Mapped => Placement::Mapped,
            Self::Staged => Placement::Staged,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OptimizerName {
    Sgd,
    Adagrad,
    RowWiseAdagrad,
}

impl OptimizerName {
    pub(crate) const fn optimizer(self, lr: f32) -> Optimizer {
        match self {
            Self::Sgd => Optimizer::sgd(lr),
            Self::Adagrad => Optimizer::adagrad(lr),
            Self::RowWiseAdagrad => Optimizer::row_wise_adagrad(lr),
        }
    }
}

/// The name that an option takes for `value`.
pub(crate) fn option_name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}
