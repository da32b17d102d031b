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
