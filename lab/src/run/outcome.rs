//! What a run has found.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Mean log-loss of the test set, in nats a sample.
    pub(crate) loss: f64,
    pub(crate) accuracy: Option<f64>,
    pub(crate) auc: Option<f64>,
    /// The test loss of predicting the base rate.
    pub(crate) base_rate: Option<f64>,
    /// What rose over the last quarter of the run, and its means before and after the middle of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rise: Option<(String, [f64; 2])>,
    /// Hit rate in training over the tables with a cache.
    pub(crate) hit_rate: Option<f64>,
    /// That of each of them, if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) hit_rates: Vec<(String, f64)>,
    /// With batches by heat, the share of the samples whose rows are all pinned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hot_samples: Option<f64>,
    /// Memory against FP32 weights, by the formula of Yang 2020's appendix A.
    pub(crate) memory_paper: f64,
    /// Every byte that stays between steps, optimiser state included, against FP32 weights.
    pub(crate) memory_true: f64,
    /// Bytes to and from the tables' memory in training.
    pub(crate) bus_bytes: u64,
    /// Updates that the tables skipped because a value was not finite.
    pub(crate) skipped_rows: u64,
    /// Steps that overflowed under a scaled loss and were skipped.
    pub(crate) overflows: Option<u64>,
    /// Under a scaled loss, the share of the gradients of the tables' outputs that became zero in FP16; of a resumed run those after it went on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lost: Option<f64>,
    /// Samples a second in the last test, frozen look-ups and the dense part.
    pub(crate) inferred_per_second: f64,
    /// Samples a second in training, with the tests on the way to a goal.
    pub(crate) samples_per_second: f64,
    pub(crate) steps: u64,
    /// Seconds of training and evaluation.
    pub(crate) seconds: f64,
    /// Mean loss of the last epoch's batches.
    pub(crate) train_loss: f64,
    /// Bytes of the tables that stay between steps.
    pub(crate) kept_bytes: u64,
    /// Median seconds of a training step, and of the tables' forward and backward in it.
    pub(crate) step_seconds: f64,
    pub(crate) tables_seconds: f64,
    /// Steps and scores of the tests during training.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) curve: Vec<(u64, f64)>,
}
