//! Plans for a cache of sets: the rows that find a way, the bytes that then cross the bus, and the best split of a memory budget.
//!
//! [`Planner`](super::Planner) solves SCARS' problem, in which each of the hottest rows has a place in the cache. In a cache of sets some
//! hot rows find their set full, and colder rows take free ways of other sets.
//!
//! - [`PlannedGroup`]: bytes of a record, a slot and a lookup, from the crate's own memory plan.
//! - [`PinnedCache`]: the rows that find a way, known or expected.
//! - [`Forecast`]: distinct rows, misses and hits of batches, with their variance.
//! - [`Judge`]: whether a count is as close to its forecast as chance allows.
//! - [`PinnedTraffic`]: bytes of a batch and of an epoch.
//! - [`SetPlanner`]: the split with the lowest cost.
//! - [`CacheQuarters`]: how many samples use each quarter of the pinned rows (SCARS Figure 4).
//!
//! ```
//! use hotrow::scars::{Budget, Skew, Workload};
//! use hotrow::scars::sets::{Forecast, Judge, MoreRows, PlannedGroup, SetBudget, SetPlanner, TableLookups};
//! use hotrow::Precision;
//!
//! // A table of 100,000 rows x 16 in INT8, 26 lookups a sample; 8 MB for pinned rows and batches.
//! let skew = Skew::zipf(100_000, 1.1)?;
//! let lookups = TableLookups::new(&skew, 100_000, 26.0);
//! let group = PlannedGroup::new(100_000, 16, 128 << 20).with_precision(Precision::Int8);
//! let bytes = group.bytes()?;
//! let memory = Budget::new(8_000_000, 26 * bytes.lookup).with_smallest_batch(64).with_batch_cost(1e5);
//! let budget = SetBudget::new(memory, Workload::training(1_000_000), bytes)
//!     .with_largest_batch(1 << 16)
//!     .with_most_sets(group.most_sets());
//! let planner = SetPlanner::new(budget, lookups)?;
//! let curve = planner.search()?;
//! let best = curve.cheapest();
//! assert!(planner.more_rows(&curve) != MoreRows::Pays && best.batch >= 64);
//!
//! // How many rows 1,000 batches of 1,000 lookups are expected to miss, and whether a count agrees.
//! let pinned = planner.cache(100).pinned;
//! let misses = Forecast::batch(&skew, &pinned, 1000).misses * 1000.0;
//! assert!(Judge::PART.judge(misses, 1.0, misses.mean.round()).within);
//! # Ok::<(), hotrow::Error>(())
//! ```

mod forecast;
mod group;
mod judge;
mod pinned;
mod planner;
mod quarters;
mod traffic;

pub use forecast::{Expected, Forecast};
pub use group::{GroupBytes, PlannedGroup};
pub use judge::{Judge, Judgement};
pub use pinned::{PinnedCache, PinnedRows};
pub use planner::{MoreRows, SetBudget, SetCurve, SetPlanner, SetSplit, TableLookups};
pub use quarters::CacheQuarters;
pub use traffic::{PinnedTraffic, RowTraffic};
