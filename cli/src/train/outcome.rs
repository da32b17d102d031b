//! The result of a run.

use serde::{Deserialize, Serialize};

/// Of one setting and seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Mean log-loss of the test set, in nats a sample.
    pub(crate) loss: f64,
    pub(crate) accuracy: Option<f64>,
    pub(crate) auc: Option<f64>,
    /// Of training, over the tables with a cache.
    pub(crate) hit_rate: Option<f64>,
    /// Against FP32 weights, by the formula of Yang 2020's appendix A.
    pub(crate) memory_paper: f64,
    /// Every byte that stays, optimiser state included, against FP32 weights.
    pub(crate) memory_true: f64,
    /// To and from the tables' memory, over training.
    pub(crate) bus_bytes: u64,
    /// Updates that the tables refused, since a value was not finite.
    #[serde(default)]
    pub(crate) skipped_rows: u64,
    /// Steps that a scaled loss left out.
    #[serde(default)]
    pub(crate) overflows: Option<u64>,
    /// In training.
    pub(crate) samples_per_second: f64,
    pub(crate) steps: u64,
    /// With evaluation.
    pub(crate) seconds: f64,
    /// Mean of the last epoch's batches.
    pub(crate) train_loss: f64,
    /// Bytes of the tables that stay between steps, where they are compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kept_bytes: Option<u64>,
    /// Steps and test losses on the way, where the run was tested on the way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) curve: Vec<(u64, f64)>,
}
