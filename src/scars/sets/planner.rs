//! The best split of a memory budget between whole sets of pinned rows and the batch.

use crate::{
    config::{WAYS, setters},
    error::Error,
    scars::{
        budget::Budget,
        planner::Planner,
        sets::{group::GroupBytes, pinned::PinnedCache, traffic::PinnedTraffic},
        skew::Skew,
        traffic::{RowBytes, Table, Workload},
    },
};
use std::collections::BTreeMap;

/// Number of points in each half of the curve.
const POINTS: u32 = 50;

/// The lookups of a table.
///
/// Example: the [module](crate::scars::sets).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TableLookups<'a> {
    /// The number of lookups of each row.
    pub skew: &'a Skew,
    /// Rows of the table.
    pub rows: u32,
    /// The rows in use, hottest first; `None` if only their distribution is known.
    pub ranked: Option<&'a [u32]>,
    /// Mean number of lookups of a sample.
    pub per_sample: f64,
}

impl<'a> TableLookups<'a> {
    /// The lookups of a table of `rows` rows of which only the distribution is known.
    #[must_use]
    pub const fn new(skew: &'a Skew, rows: u32, per_sample: f64) -> Self {
        Self { skew, rows, ranked: None, per_sample }
    }

    /// With another [`ranked`](Self::ranked).
    #[must_use]
    pub const fn with_ranked(mut self, ranked: Option<&'a [u32]>) -> Self {
        self.ranked = ranked;
        self
    }

    /// Number of lookups of `samples` samples, rounded, at least 1.
    #[must_use]
    pub fn of_samples(&self, samples: u64) -> u64 {
        ((samples as f64 * self.per_sample).round() as u64).max(1)
    }

    /// A cache of `sets` sets, with the rows that find a way in it.
    #[must_use]
    pub fn cache(&self, sets: u32, pinned_ways: u32) -> PinnedCache {
        let wanted = u64::from(sets) * u64::from(pinned_ways);
        match self.ranked {
            Some(ranked) => PinnedCache::known(self.skew, ranked, self.rows, wanted, pinned_ways),
            None => PinnedCache::expected(self.skew, self.rows, wanted, pinned_ways),
        }
    }
}

/// The memory to split, the epoch to serve, and the limits of a split.
///
/// Example: the [module](crate::scars::sets).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SetBudget {
    /// The memory (SCARS eq. 7).
    pub memory: Budget,
    /// The epoch.
    pub workload: Workload,
    /// Whether only the smallest batch of `memory` is considered.
    pub fixed_batch: bool,
    /// Samples of the largest batch that a step can take.
    pub largest_batch: u64,
    /// Bytes of a record.
    pub record: u64,
    /// Bytes of a slot on the device.
    pub slot: u64,
    /// Sets of the largest legal cache: [`PlannedGroup::most_sets`](super::PlannedGroup::most_sets).
    pub most_sets: u32,
    /// Number of ways of a set that may be pinned, 1 to 32.
    pub pinned_ways: u32,
}

setters!(SetBudget {
    with_fixed_batch fixed_batch: bool,
    with_largest_batch largest_batch: u64,
    with_most_sets most_sets: u32,
    with_pinned_ways pinned_ways: u32,
});

impl SetBudget {
    /// A split of `memory` for a group whose records and slots take `bytes`. Every batch that fits is considered, caches have any number of
    /// sets, and all ways may be pinned.
    #[must_use]
    pub const fn new(memory: Budget, workload: Workload, bytes: GroupBytes) -> Self {
        Self {
            memory,
            workload,
            fixed_batch: false,
            largest_batch: u64::MAX,
            record: bytes.record,
            slot: bytes.slot,
            most_sets: u32::MAX,
            pinned_ways: WAYS,
        }
    }

    /// The epoch, in the form that traffic is counted for.
    #[must_use]
    pub fn traffic<'a>(&self, lookups: &TableLookups<'a>) -> PinnedTraffic<'a> {
        PinnedTraffic {
            skew: lookups.skew,
            lookups: lookups.of_samples(self.workload.samples),
            record: self.record,
            training: self.workload.training,
        }
    }

    const fn set_bytes(&self) -> u64 {
        self.slot * WAYS as u64
    }

    /// Bytes of a pinned row: its share of a set.
    const fn row_bytes(&self) -> u64 {
        self.set_bytes().div_ceil(self.pinned_ways as u64)
    }
}

/// A split of the memory, and its cost.
///
/// Example: the [module](crate::scars::sets).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SetSplit {
    /// Number, known or expected, of pinned rows.
    pub pinned_rows: f64,
    /// Bytes of the cache.
    pub cache_bytes: u64,
    /// Samples of a batch.
    pub batch: u64,
    /// Expected bytes of an epoch, with one flush.
    pub epoch_bytes: f64,
    /// The cost that is minimised: the bytes of an epoch, and the fixed cost of its batches.
    pub cost: f64,
    /// The cost in percent of the cost without a cache, where the batch has all memory.
    pub cost_percent: f64,
    /// The share of all lookups whose row is pinned, 0 to 1.
    pub hit_rate: f64,
}

/// The splits that a search has considered.
///
/// Example: the [module](crate::scars::sets).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SetCurve {
    /// The splits by the number of sets of their cache.
    pub splits: BTreeMap<u32, SetSplit>,
    /// The number of sets of the cheapest split; the smallest of equal ones.
    pub best: u32,
}

impl SetCurve {
    fn new(splits: BTreeMap<u32, SetSplit>) -> Self {
        let cheapest = splits.iter().min_by(|(_, a), (_, b)| a.cost.total_cmp(&b.cost));
        Self { best: cheapest.map_or(0, |(&sets, _)| sets), splits }
    }

    /// The cheapest split.
    ///
    /// # Panics
    /// If `best` was set to a number of sets without a split.
    #[must_use]
    pub fn cheapest(&self) -> &SetSplit {
        &self.splits[&self.best]
    }
}

/// Whether one more set of pinned rows, with a batch that is smaller by its memory, costs less than the cheapest split.
///
/// Example: the [module](crate::scars::sets).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MoreRows {
    /// The larger cache costs less.
    Pays,
    /// The larger cache saves less than the smaller batch loses.
    DoesNotPay,
    /// Every row in use is pinned already.
    AllRows,
    /// The cache is the largest that is legal.
    AllWays,
    /// The smallest batch leaves no room for another set.
    NoRoom,
}

/// Searches the split with the lowest cost. Each size of the cache is judged by the rows that find a way in it.
///
/// Example: the [module](crate::scars::sets).
#[derive(Clone, Debug)]
pub struct SetPlanner<'a> {
    budget: SetBudget,
    lookups: TableLookups<'a>,
    planner: Planner,
    /// The number of sets of the largest cache that leaves room for the smallest batch.
    most: u32,
    /// The cost of an epoch without a cache, where the batch has all memory.
    bare: f64,
}

impl<'a> SetPlanner<'a> {
    /// Checks the budget and prepares the search.
    ///
    /// # Errors
    /// [`Error::Scars`], as [`Table::new`] and [`Planner::new`].
    pub fn new(budget: SetBudget, lookups: TableLookups<'a>) -> Result<Self, Error> {
        let row = RowBytes { record: budget.record, slot: budget.row_bytes(), index: 4 };
        let table = Table::new(lookups.skew.clone(), row, lookups.per_sample)?;
        let planner = Planner::new(vec![table], budget.workload, budget.memory)?;
        let Budget { bytes, sample, smallest_batch, .. } = budget.memory;
        let room = bytes.saturating_sub(sample.saturating_mul(smallest_batch)) / budget.set_bytes();
        let most = room.min(budget.most_sets.into()) as u32;
        let mut planner = Self { budget, lookups, planner, most, bare: f64::NAN };
        planner.bare = planner.split(0).cost;
        Ok(planner)
    }

    /// A cache of `sets` sets.
    #[must_use]
    pub fn cache(&self, sets: u32) -> PinnedCache {
        self.lookups.cache(sets, self.budget.pinned_ways)
    }

    /// Searches caches from no set to all sets that leave room for the smallest batch, then halves the gaps beside the cheapest, until its
    /// neighbours with one set more and one set less have been considered.
    ///
    /// # Errors
    /// None after a successful [`SetPlanner::new`], unless the smallest batch does not fit.
    pub fn search(&self) -> Result<SetCurve, Error> {
        let near = (self.ideal()?.cache_bytes / self.budget.set_bytes()).min(self.most.into()) as u32;
        let sizes = self.sizes().into_iter().chain([near, near.saturating_add(1).min(self.most)]);
        let mut found = SetCurve::new(sizes.map(|sets| (sets, self.split(sets))).collect());
        loop {
            let (splits, best) = (&found.splits, found.best);
            let before = splits.range(..best).next_back();
            let after = splits.range(best.saturating_add(1)..).next();
            let between = [before, after].into_iter().flatten().map(|(&other, _)| best.midpoint(other));
            let new: Vec<u32> = between.filter(|sets| !splits.contains_key(sets)).collect();
            if new.is_empty() {
                return Ok(found);
            }
            let mut splits = found.splits;
            splits.extend(new.into_iter().map(|sets| (sets, self.split(sets))));
            found = SetCurve::new(splits);
        }
    }

    /// The best split of [`Planner`], which solves SCARS' problem: each of the hottest rows has a place, and lookups are independent.
    ///
    /// # Errors
    /// As [`Planner::at_batch`].
    pub fn ideal(&self) -> Result<SetSplit, Error> {
        let (smallest, _) = self.planner.batches();
        let split = if self.budget.fixed_batch { self.planner.at_batch(smallest)? } else { self.planner.best() };
        Ok(SetSplit {
            pinned_rows: split.pinned[0] as f64,
            cache_bytes: split.pinned[0] * self.budget.row_bytes(),
            batch: split.batch,
            epoch_bytes: split.of_epoch.total(),
            cost: split.cost,
            cost_percent: 100.0 * split.cost / self.bare,
            hit_rate: split.hit_rate,
        })
    }

    /// Whether one more set of pinned rows pays.
    #[must_use]
    pub fn more_rows(&self, found: &SetCurve) -> MoreRows {
        let Some(best) = found.splits.get(&found.best) else { return MoreRows::NoRoom };
        let used = self.lookups.ranked.map_or(f64::from(self.lookups.rows), |ranked| ranked.len() as f64);
        if best.pinned_rows >= used {
            MoreRows::AllRows
        } else if found.best == self.budget.most_sets {
            MoreRows::AllWays
        } else if found.best == self.most {
            MoreRows::NoRoom
        } else if self.split(found.best + 1).cost < best.cost {
            MoreRows::Pays
        } else {
            MoreRows::DoesNotPay
        }
    }

    /// The sizes of the cache to consider first. Towards both ends the distance to the end shrinks by a constant factor.
    fn sizes(&self) -> Vec<u32> {
        let half = f64::from(self.most) / 2.0;
        let reach = half.max(1.0);
        let steps = (1..=POINTS).map(|i| (half * reach.powf(-f64::from(i) / f64::from(POINTS))) as u32);
        steps.flat_map(|sets| [sets, self.most - sets]).chain([0, self.most / 2, self.most]).collect()
    }

    /// The split with `sets` sets, and the fixed batch or else the largest that fits, because a larger batch never costs more.
    fn split(&self, sets: u32) -> SetSplit {
        let SetBudget { memory, workload, fixed_batch, largest_batch, .. } = self.budget;
        let cache_bytes = u64::from(sets) * self.budget.set_bytes();
        let beside = memory.bytes.saturating_sub(cache_bytes).checked_div(memory.sample).unwrap_or(u64::MAX);
        let most = beside.min(workload.samples).min(largest_batch).max(memory.smallest_batch);
        let batch = if fixed_batch { memory.smallest_batch } else { most };
        let pinned = self.cache(sets).pinned;
        let epoch = self.budget.traffic(&self.lookups).epoch(&pinned, self.lookups.of_samples(batch));
        let epoch_bytes = epoch.bytes.total();
        let cost = epoch_bytes + workload.batches(batch) as f64 * memory.batch_cost;
        SetSplit {
            pinned_rows: pinned.rows(),
            cache_bytes,
            batch,
            epoch_bytes,
            cost,
            cost_percent: 100.0 * cost / if self.bare.is_nan() { cost } else { self.bare },
            hit_rate: pinned.hit_rate(self.lookups.skew),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(bytes: u64, batch_cost: f64) -> SetBudget {
        SetBudget {
            memory: Budget { bytes, sample: 100, smallest_batch: 10, batch_cost },
            workload: Workload::training(100_000),
            fixed_batch: false,
            largest_batch: 1 << 30,
            record: 24,
            slot: 40,
            most_sets: 32,
            pinned_ways: 32,
        }
    }

    #[test]
    fn the_cheapest_of_all_sizes_is_found() {
        let skew = Skew::zipf(1000, 1.0).unwrap();
        let lookups = TableLookups { skew: &skew, rows: 1000, ranked: None, per_sample: 1.0 };
        for (batch_cost, ends) in [(0.0, (20, 31)), (2000.0, (1, 30))] {
            let planner = SetPlanner::new(budget(40_000, batch_cost), lookups).unwrap();
            let found = planner.search().unwrap();
            let slow = (0..=planner.most).map(|sets| planner.split(sets).cost).fold(f64::INFINITY, f64::min);
            assert_eq!(found.cheapest().cost, slow, "{batch_cost}");
            assert!((ends.0..=ends.1).contains(&found.best), "{batch_cost}: {}", found.best);
            assert_eq!(found.splits[&0].cost_percent, 100.0);
            // A cache without sets allows every split that a cache of sets allows.
            assert!(planner.ideal().unwrap().cost <= slow, "{batch_cost}");
        }
    }

    #[test]
    fn why_no_more_rows_are_pinned() {
        let skew = Skew::zipf(1000, 1.0).unwrap();
        let lookups = TableLookups { skew: &skew, rows: 1000, ranked: None, per_sample: 1.0 };
        let why = |budget| {
            let planner = SetPlanner::new(budget, lookups).unwrap();
            planner.more_rows(&planner.search().unwrap())
        };
        assert_eq!(why(budget(40_000, 2000.0)), MoreRows::DoesNotPay);
        assert_eq!(why(SetBudget { fixed_batch: true, ..budget(20_000, 0.0) }), MoreRows::NoRoom);
        assert_eq!(why(budget(1 << 30, 0.0)), MoreRows::AllWays);
        assert_eq!(why(SetBudget { most_sets: 4, ..budget(1 << 30, 0.0) }), MoreRows::AllWays);
        let few = Skew::uniform(3).unwrap();
        let planner = SetPlanner::new(budget(1 << 20, 0.0), TableLookups { skew: &few, rows: 3, ..lookups }).unwrap();
        assert_eq!(planner.more_rows(&planner.search().unwrap()), MoreRows::AllRows);
    }
}
