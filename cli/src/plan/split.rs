//! The split of the budget between pinned rows and the batch: caches of many sizes, each judged by what it does with the rows that find a
//! way in it. The cheapest is the plan.

use super::bus::Bus;
use super::fit::Cache;
use super::input::{From, Input};
use super::report::{OneMore, Point};
use hotrow::Error;
use hotrow::scars::{Budget, Planner, RowBytes, Skew, Table, Workload};
use std::collections::BTreeMap;

/// Points of each half of the curve.
const POINTS: u32 = 50;

/// What is to be split, and what it is worth. Sizes in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) budget: Budget,
    /// The smallest batch is the only one.
    pub(super) fixed: bool,
    /// Samples of the largest batch that a step takes.
    pub(super) largest_batch: u64,
    /// A row over the bus; in the budget; and the index of a lookup.
    pub(super) row: RowBytes,
    /// A set of the cache, and the most sets that the crate takes.
    pub(super) set: u64,
    pub(super) most_sets: u32,
    /// Ways of a set that may be pinned.
    pub(super) share: u32,
    pub(super) workload: Workload,
    /// Lookups of a sample.
    pub(super) lookups: f64,
}

impl Asked {
    /// Of a batch of so many samples.
    pub(super) fn lookups_of(&self, samples: u64) -> u64 {
        ((samples as f64 * self.lookups).round() as u64).max(1)
    }

    /// Of an epoch.
    pub(super) fn bus<'a>(&self, skew: &'a Skew) -> Bus<'a> {
        Bus {
            skew,
            lookups: self.lookups_of(self.workload.samples),
            record: self.row.record,
            training: self.workload.training,
        }
    }
}

/// Looks for the split that costs least.
pub(super) struct Splitter<'a> {
    asked: &'a Asked,
    input: &'a Input,
    planner: Planner,
    /// Sets of the largest cache.
    most: u32,
    /// What an epoch costs without a cache, all memory being the batch's.
    bare: f64,
}

/// What was looked at, by sets of the cache.
pub(super) struct Found {
    pub(super) points: BTreeMap<u32, Point>,
    /// The cheapest; of equals the smallest.
    pub(super) best: u32,
}

impl Found {
    fn new(points: BTreeMap<u32, Point>) -> Self {
        let cheapest = points.iter().min_by(|(_, a), (_, b)| a.epoch_cost.total_cmp(&b.epoch_cost));
        Self { best: cheapest.map_or(0, |(&sets, _)| sets), points }
    }
}

impl<'a> Splitter<'a> {
    pub(super) fn new(asked: &'a Asked, input: &'a Input) -> Result<Self, Error> {
        let table = Table::new(input.skew.clone(), asked.row, asked.lookups)?;
        let planner = Planner::new(vec![table], asked.workload, asked.budget)?;
        let Budget { bytes, sample, smallest_batch, .. } = asked.budget;
        let room = bytes.saturating_sub(sample.saturating_mul(smallest_batch)) / asked.set;
        let most = room.min(asked.most_sets.into()) as u32;
        let mut splitter = Self { asked, input, planner, most, bare: f64::NAN };
        splitter.bare = splitter.at(0).epoch_cost;
        Ok(splitter)
    }

    /// The cache of so many sets.
    pub(super) fn cache(&self, sets: u32) -> Cache {
        let (skew, rows, share) = (&self.input.skew, self.input.rows, self.asked.share);
        let wanted = u64::from(sets) * u64::from(share);
        match &self.input.from {
            From::Trace(lookups) => Cache::known(skew, &lookups.ranked, rows, wanted, share),
            From::Distribution(_) => Cache::expected(skew, rows, wanted, share),
        }
    }

    /// Sizes of the cache from none to all that the smallest batch leaves room for; then around the cheapest, until its neighbours, a set
    /// more and a set less, were looked at.
    pub(super) fn search(&self) -> Result<Found, Error> {
        let near = (self.ideal()?.cache_bytes / self.asked.set).min(self.most.into()) as u32;
        let sizes = self.sizes().into_iter().chain([near, near.saturating_add(1).min(self.most)]);
        let mut found = Found::new(sizes.map(|sets| (sets, self.at(sets))).collect());
        loop {
            let (points, best) = (&found.points, found.best);
            let before = points.range(..best).next_back();
            let after = points.range(best.saturating_add(1)..).next();
            let between = [before, after].into_iter().flatten().map(|(&other, _)| best.midpoint(other));
            let new: Vec<u32> = between.filter(|sets| !points.contains_key(sets)).collect();
            if new.is_empty() {
                return Ok(found);
            }
            let mut points = found.points;
            points.extend(new.into_iter().map(|sets| (sets, self.at(sets))));
            found = Found::new(points);
        }
    }

    /// The library's planner: P3's problem, in which each of the hottest rows has a place, and lookups are drawn independently.
    pub(super) fn ideal(&self) -> Result<Point, Error> {
        let (smallest, _) = self.planner.batches();
        let split = if self.asked.fixed { self.planner.at_batch(smallest)? } else { self.planner.best() };
        Ok(Point {
            pinned_rows: split.pinned[0] as f64,
            cache_bytes: split.pinned[0] * self.asked.row.slot,
            batch_samples: split.batch,
            epoch_bytes: split.of_epoch.total(),
            epoch_cost: split.cost,
            cost_percent: 100.0 * split.cost / self.bare,
            hit_rate: split.hit_rate,
        })
    }

    /// Whether one more set of rows, and as much less of a batch, costs less than the best.
    pub(super) fn one_more(&self, found: &Found) -> OneMore {
        let Some(best) = found.points.get(&found.best) else { return OneMore::NoRoom };
        let used = match &self.input.from {
            From::Trace(lookups) => lookups.ranked.len() as f64,
            From::Distribution(_) => f64::from(self.input.rows),
        };
        if best.pinned_rows >= used {
            OneMore::AllRows
        } else if found.best == self.asked.most_sets {
            OneMore::AllWays
        } else if found.best == self.most {
            OneMore::NoRoom
        } else if self.at(found.best + 1).epoch_cost < best.epoch_cost {
            OneMore::Pays
        } else {
            OneMore::DoesNotPay
        }
    }

    /// Near both ends each is by the same factor nearer to its end.
    fn sizes(&self) -> Vec<u32> {
        let half = f64::from(self.most) / 2.0;
        let reach = half.max(1.0);
        let steps = (1..=POINTS).map(|i| (half * reach.powf(-f64::from(i) / f64::from(POINTS))) as u32);
        steps.flat_map(|sets| [sets, self.most - sets]).chain([0, self.most / 2, self.most]).collect()
    }

    /// So many sets, beside the batch that is fixed or the largest that fits: of batches the larger is never dearer.
    fn at(&self, sets: u32) -> Point {
        let Asked { budget, fixed, largest_batch, set, workload, .. } = self.asked;
        let cache_bytes = u64::from(sets) * set;
        let beside = budget.bytes.saturating_sub(cache_bytes).checked_div(budget.sample).unwrap_or(u64::MAX);
        let most = beside.min(workload.samples).min(*largest_batch).max(budget.smallest_batch);
        let batch = if *fixed { budget.smallest_batch } else { most };
        let pinned = self.cache(sets).pinned;
        let bus = self.asked.bus(&self.input.skew);
        let epoch_bytes = bus.epoch(&pinned, self.asked.lookups_of(batch)).total();
        let epoch_cost = epoch_bytes + workload.batches(batch) as f64 * budget.batch_cost;
        Point {
            pinned_rows: pinned.rows(),
            cache_bytes,
            batch_samples: batch,
            epoch_bytes,
            epoch_cost,
            cost_percent: 100.0 * epoch_cost / if self.bare.is_nan() { epoch_cost } else { self.bare },
            hit_rate: pinned.mass(&self.input.skew),
        }
    }
}
