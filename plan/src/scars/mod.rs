//! Predicts how much must cross the bus and what to keep on the GPU: the model of SCARS (docs/references.md), in the bytes of hotrow. It needs no device.
//!
//! A [`Skew`] tells how often each row is looked up; all other results are sums over it. Rows are numbered by rank, the most probable first.
//!
//! Symbols of the paper: `P(e)` is the probability that a lookup asks for row e; b, the lookups of a batch; C, the rows kept on the device; M, its
//! memory; a, the memory of a sample.
//!
//! - [`Profile`]: counts lookups, all of them, by sample, or in bounded memory, and gives the hottest rows and their [`Skew`].
//! - [`Skew`]: P(e), counted or from a [`Formula`], of one table or of several; the hit rate of pinned rows.
//! - [`Planner`]: the best split of one memory between whole sets of pinned rows and the batch (eq. 7), for the tables of a group.
//!   [`PlannedGroup`]: the bytes that it calculates with, from hotrow's own memory plan.
//! - [`Pinned`]: the rows that fit into their cache sets. Some hot rows find their set full, and colder rows take free ways of other sets.
//! - [`Forecast`]: distinct rows (eq. 1 and 2), misses and hits of batches, with their variance. [`Expected::judge`]: whether a count is as close to it as
//!   chance allows.
//! - [`HotBatches`]: batches of samples whose rows are all pinned; they move no row over the bus.
//!
//! ```
//! use hotrow::GroupConfig;
//! use hotrow_plan::scars::{Budget, Forecast, Formula, PlannedGroup, Planner, Skew};
//!
//! // Two tables of rows of 16 in INT8 that share a cache, with 20 and 6 lookups a sample; 8 MB for pinned rows and batches.
//! let (items, users) = (Skew::of(Formula::Zipf(1.1), 100_000)?, Skew::of(Formula::HalfNormal(500.0), 20_000)?);
//! let both = Skew::mixed(&[(&items, 20.0), (&users, 6.0)])?;
//! let group = PlannedGroup::new(GroupConfig::new(&[100_000, 20_000], 16), true, 128 << 20)?;
//! let budget = Budget::new(8_000_000, 26 * group.lookup, 1_000_000, &group);
//! let budget = Budget { smallest_batch: 64, largest_batch: 1 << 16, batch_cost: 1e5, ..budget };
//! let planner = Planner::new(budget, &both, 26.0)?;
//! let plan = planner.search();
//! let (best, pinned) = (plan.cheapest(), planner.pinned(plan.best));
//! assert!(best.batch >= 64 && best.hit_rate > 0.5);
//! assert_eq!(planner.epoch(&pinned, planner.lookups_of(best.batch)).bytes(), best.epoch_bytes);
//!
//! // How many rows 1,000 batches of 1,000 lookups are expected to miss, and whether a count agrees.
//! let misses = Forecast::batch(&both, &pinned, 1000).misses * 1000.0;
//! assert!(misses.judge(1.0, misses.mean.round(), false).within);
//! # Ok::<(), hotrow_plan::Error>(())
//! ```

mod bins;
mod forecast;
mod group;
mod hot;
mod law;
mod pinned;
mod planner;
mod profile;
mod skew;

pub use forecast::{Expected, Forecast, Judgement};
pub use group::PlannedGroup;
pub use hot::HotBatches;
pub use law::Formula;
pub use pinned::Pinned;
pub use planner::{Budget, MoreRows, Plan, Planner, Split, Traffic};
pub use profile::Profile;
pub use skew::Skew;

use crate::error::{Error, refused};

/// Checks that a number is finite and above zero.
fn positive(what: &'static str, value: f64, remedy: &'static str) -> Result<f64, Error> {
    if value.is_finite() && value > 0.0 { Ok(value) } else { Err(refused(what, "a number above 0", &value, remedy)) }
}
