//! How much must cross the bus, and what to keep on the GPU: the model of P3 ("Stochastic Communication Avoidance for
//! Recommendation Systems"), in its words and in the bytes of this crate. No device.
//!
//! A [`Skew`] says how often each row is looked up. Everything else is a sum over it. Rows are numbered from the most probable
//! one on, so that "the pinned rows" are always the hottest ones and one number says which.
//!
//! Symbols of the paper: `P(e)`, the probability that a lookup asks for row e; b, lookups in a batch; Q, lookups in an epoch;
//! d, words a row takes; C, the rows kept on the device; M, its memory; a, what a sample takes of it.
//!
//! - [`Skew`]: P(e), measured or by a [`Formula`]; distinct rows of a batch (eq. 1 and 2); hit rate of pinned rows.
//! - [`words`]: eq. 3 to 6 as they stand. [`Table`]: the same in bytes of records, in both directions.
//! - [`Marginal`]: whether one more cached row pays (eq. 8 to 13), and the paper's binary search.
//! - [`Planner`]: rows of one or several tables against the batch under one memory (eq. 7), in whole rows and samples; the best split.
//! - [`fits`], [`left_out`], [`sets_for`]: what becomes of pinned rows in a cache of sets.
//! - [`sets`]: the same split for a cache of sets, in which some hot rows find no way; what batches then show, and how far chance moves it.
//! - [`growth`], [`scaling_claims`]: the paper's claim about larger tables.
//! - [`Profile`]: lookups counted, all of them, a sample, or in bounded memory; [`Ranked`]: the hottest rows, and their [`Skew`].
//! - [`HotBatches`]: samples whose rows are all pinned in batches of their own, which move no row over the bus.
//! - [`Run`]: what to pin next, by what a run has shown.
//!
//! ```
//! use hotrow::scars::{Budget, Planner, RowBytes, Skew, Table, Workload};
//!
//! let skew = Skew::zipf(1_000_000, 1.1)?;
//! let bytes = RowBytes { record: 36, slot: 144, index: 4 };
//! let table = Table::new(skew, bytes, 26.0)?;
//! let budget = Budget { bytes: 64 << 20, sample: 8192, smallest_batch: 256, batch_cost: 1e6 };
//! let best = Planner::new(vec![table], Workload::training(10_000_000), budget)?.best();
//! assert!(best.batch > 256 && best.pinned[0] > 100_000 && best.hit_rate > 0.8);
//! # Ok::<(), hotrow::Error>(())
//! ```

mod adapt;
mod bins;
mod budget;
mod distinct;
mod fit;
mod growth;
mod hot;
mod law;
mod marginal;
mod planner;
mod profile;
mod ranked;
pub mod sets;
mod share;
mod skew;
mod traffic;
mod window;
pub mod words;

pub use adapt::{Advice, Proposal, Rates, Rules, Run};
pub use budget::Budget;
pub use distinct::Draws;
pub use fit::{expected_fit, fits, left_out, sets_for};
pub use growth::{Growth, Point, ScalingClaim, growth, scaling_claims};
pub use hot::{HotBatch, HotBatches, HotRows, Kind, Samples};
pub use law::Formula;
pub use marginal::{Change as Trade, Marginal};
pub use planner::{Planner, Split};
pub use profile::{Counting, Profile};
pub use ranked::{Accuracy, Ranked, SkewTable};
pub use skew::{Bin, Skew};
pub use traffic::{Bytes, RowBytes, Table, Workload};

use crate::error::Error;

/// Refuses an argument.
fn refused(
    what: &'static str,
    wanted: impl Into<String>,
    found: &dyn std::fmt::Display,
    remedy: &'static str,
) -> Error {
    Error::Scars { what, wanted: wanted.into(), found: found.to_string(), remedy }
}

/// A number above zero, or a refusal.
fn positive(what: &'static str, value: f64, remedy: &'static str) -> Result<f64, Error> {
    if value.is_finite() && value > 0.0 { Ok(value) } else { Err(refused(what, "a number above 0", &value, remedy)) }
}
