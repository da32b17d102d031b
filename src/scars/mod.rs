//! Predicts how much must cross the bus and what to keep on the GPU: the model of SCARS (docs/references.md), in the
//! paper's words and in the bytes of this crate. It needs no device.
//!
//! A [`Skew`] tells how often each row is looked up; all other results are sums over it. Rows are numbered by rank, the
//! most probable first, so the pinned rows are always the hottest ones, and one number describes them.
//!
//! Symbols of the paper: `P(e)` is the probability that a lookup asks for row e; b, the lookups of a batch; Q, the
//! lookups of an epoch; d, the words of a row; C, the rows kept on the device; M, its memory; a, the memory of a
//! sample.
//!
//! - [`Skew`]: P(e), measured or from a [`Formula`]; distinct rows of a batch (eq. 1 and 2); hit rate of pinned rows.
//! - [`words`]: eq. 3 to 6 as they stand. [`Table`]: the same in bytes of records, in both directions.
//! - [`Marginal`]: whether one more cached row pays (eq. 8 to 13), and the paper's binary search.
//! - [`Planner`]: the best split of one memory between rows of one or several tables and the batch (eq. 7), in whole
//!   rows and samples.
//! - [`fits`], [`left_out`], [`sets_for`]: how many pinned rows find a way in a cache of sets.
//! - [`sets`]: the same split for a cache of sets, in which some hot rows find no way; the counts that batches show, and their scatter.
//! - [`growth`], [`scaling_claims`]: the paper's claim about larger tables.
//! - [`Profile`]: counts lookups, all of them, by sample, or in bounded memory. [`Ranked`]: the hottest rows and their
//!   [`Skew`].
//! - [`HotBatches`]: batches of samples whose rows are all pinned; they move no row over the bus.
//! - [`Run`]: proposes the rows to pin next from the counters of a run.
//!
//! ```
//! use hotrow::scars::{Budget, Planner, RowBytes, Skew, Table, Workload};
//!
//! let skew = Skew::zipf(1_000_000, 1.1)?;
//! let bytes = RowBytes::new(36, 144);
//! let table = Table::new(skew, bytes, 26.0)?;
//! let budget = Budget::new(64 << 20, 8192).with_smallest_batch(256).with_batch_cost(1e6);
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

/// The error that refuses an argument.
fn refused(
    what: &'static str,
    wanted: impl Into<String>,
    found: &dyn std::fmt::Display,
    remedy: &'static str,
) -> Error {
    Error::Scars { what, wanted: wanted.into(), found: found.to_string(), remedy }
}

/// Checks that a number is finite and above zero.
fn positive(what: &'static str, value: f64, remedy: &'static str) -> Result<f64, Error> {
    if value.is_finite() && value > 0.0 { Ok(value) } else { Err(refused(what, "a number above 0", &value, remedy)) }
}
