//! The best split of a memory budget between whole sets of pinned rows and the batch.

use crate::{
    error::{Error, refused},
    scars::{forecast::Forecast, group::PlannedGroup, pinned::Pinned, positive, skew::Skew},
};
use hotrow::WAYS;
use std::collections::BTreeMap;

/// Number of points in each half of the curve.
const POINTS: u32 = 50;

/// The memory to split (SCARS eq. 7: `b = (M - |C| d) / a`), the epoch to serve, and the limits of a split.
///
/// Example: the [module](crate::scars).
#[derive(Clone, Debug, PartialEq)]
pub struct Budget {
    /// The group whose rows are pinned.
    pub group: PlannedGroup,
    /// Bytes for pinned rows and the batch together: M.
    pub bytes: u64,
    /// Bytes that a sample of a batch takes, activations included: a. With 0 only the epoch bounds a batch.
    pub sample: u64,
    /// Samples of an epoch.
    pub samples: u64,
    /// Samples of the smallest batch. Without a fixed cost of a batch the smallest is often the cheapest: it leaves most memory to rows.
    pub smallest_batch: u64,
    /// Samples of the largest batch; as many as in the smallest fix the batch.
    pub largest_batch: u64,
    /// The fixed cost of a batch, as the bytes that could cross the bus in that time.
    pub batch_cost: f64,
    /// Number of ways of a set that may be pinned, 1 to 32.
    pub pinned_ways: u32,
}

impl Budget {
    /// A split of `bytes`, of which a sample takes `sample`, for epochs of `samples` samples of this group. Every batch that fits is considered and
    /// has no cost of its own, and all ways may be pinned.
    #[must_use]
    pub fn new(bytes: u64, sample: u64, samples: u64, group: &PlannedGroup) -> Self {
        let (smallest_batch, largest_batch, pinned_ways) = (1, u64::MAX, WAYS);
        let group = group.clone();
        Self { group, bytes, sample, samples, smallest_batch, largest_batch, batch_cost: 0.0, pinned_ways }
    }

    fn check(&self) -> Result<(), Error> {
        let smallest = self.smallest_batch;
        if smallest == 0 || smallest > self.samples {
            let wanted = format!("1 to the {} samples of an epoch", self.samples);
            return Err(refused("smallest batch", wanted, &smallest, "give samples"));
        }
        if !(self.batch_cost.is_finite() && self.batch_cost >= 0.0) {
            return Err(refused("cost of a batch", "0 or more bytes", &self.batch_cost, "give bytes"));
        }
        if self.bytes.checked_div(self.sample).is_some_and(|most| most < smallest) {
            let wanted = format!("{} bytes or more", u128::from(self.sample) * u128::from(smallest));
            let remedy = "raise the budget, or make the smallest batch or what a sample takes smaller";
            return Err(refused("budget", wanted, &self.bytes, remedy));
        }
        Ok(())
    }
}

/// Expected traffic of a batch or an epoch.
///
/// Example: the [module](crate::scars).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Traffic {
    /// Distinct rows of each batch, summed over the batches.
    pub distinct_rows: f64,
    /// Bytes of indices, sent to the device: 4 for each lookup.
    pub index: f64,
    /// Bytes of records read from the table's memory.
    pub read: f64,
    /// Bytes of records written to the table's memory.
    pub written: f64,
}

impl Traffic {
    /// All bytes: both directions and indices.
    #[must_use]
    pub fn bytes(&self) -> f64 {
        self.index + self.read + self.written
    }
}

/// A split of the memory, and its cost.
///
/// Example: the [module](crate::scars).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Split {
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
    /// The share of all lookups whose row is pinned, 0 to 1.
    pub hit_rate: f64,
}

/// The splits that a search has considered.
///
/// Example: the [module](crate::scars).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Plan {
    /// The splits by the number of sets of their cache.
    pub splits: BTreeMap<u32, Split>,
    /// The number of sets of the cheapest split; the smallest of equal ones.
    pub best: u32,
    /// Why one set more does not cost less.
    pub more: MoreRows,
}

impl Plan {
    /// The cheapest split.
    ///
    /// # Panics
    /// If `best` was set to a number of sets without a split.
    #[must_use]
    pub fn cheapest(&self) -> &Split {
        &self.splits[&self.best]
    }
}

/// Why one more set of pinned rows, with a batch that is smaller by its memory, costs no less than the cheapest split.
///
/// Example: the [module](crate::scars).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MoreRows {
    /// The larger cache saves less than the smaller batch loses.
    DoesNotPay,
    /// Every row in use is pinned already.
    AllRows,
    /// The cache is the largest that is legal.
    AllWays,
    /// The smallest batch leaves no room for another set.
    NoRoom,
}

/// Searches the split with the lowest cost. Each size of the cache is judged by the rows that fit into its sets.
///
/// The tables of a group share one cache, so a plan for several tables is one for all their rows, ranked together: counted by one
/// [`Profile`](crate::scars::Profile), or mixed by [`Skew::mixed`].
///
/// Example: the [module](crate::scars).
#[derive(Clone, Debug)]
pub struct Planner<'a> {
    budget: Budget,
    skew: &'a Skew,
    ranked: Option<&'a [u32]>,
    per_sample: f64,
    /// The number of sets of the largest cache that leaves room for the smallest batch.
    most: u32,
}

impl<'a> Planner<'a> {
    /// Checks the budget and prepares the search. A sample looks up `per_sample` rows on average.
    ///
    /// # Errors
    /// [`Error::Argument`] names what the budget lacks.
    pub fn new(budget: Budget, skew: &'a Skew, per_sample: f64) -> Result<Self, Error> {
        positive("lookups of a sample", per_sample, "give the mean number of rows a sample looks up")?;
        budget.check()?;
        let most = skew.rows().div_ceil(WAYS.into()).min(budget.group.most_sets.into()) as u32;
        let planner = Self { budget, skew, ranked: None, per_sample, most };
        Ok(Self { most: planner.most_beside(planner.budget.smallest_batch), ..planner })
    }

    /// The number of sets of the largest cache beside a batch of `batch` samples.
    fn most_beside(&self, batch: u64) -> u32 {
        let room = self.budget.bytes.saturating_sub(self.budget.sample.saturating_mul(batch));
        (room / (self.budget.group.slot * u64::from(WAYS))).min(self.most.into()) as u32
    }

    /// With known rows in use, hottest first, as of [`Profile::hottest`](crate::scars::Profile::hottest): then the plan is for the rows that find a
    /// way, and not for an expected number of them.
    #[must_use]
    pub const fn with_ranked(mut self, ranked: &'a [u32]) -> Self {
        self.ranked = Some(ranked);
        self
    }

    /// Number of lookups of `samples` samples, rounded, at least 1.
    #[must_use]
    pub fn lookups_of(&self, samples: u64) -> u64 {
        ((samples as f64 * self.per_sample).round() as u64).max(1)
    }

    /// The rows that fit into a cache of `sets` sets.
    #[must_use]
    pub fn pinned(&self, sets: u32) -> Pinned {
        match self.ranked {
            Some(ranked) => Pinned::known(self.skew, ranked, sets, self.budget.pinned_ways),
            None => Pinned::expected(self.skew, sets, self.budget.pinned_ways),
        }
    }

    /// The traffic of a batch of `lookups` lookups: its indices, and each distinct row that is not pinned, read and in training also written.
    #[must_use]
    pub fn batch(&self, pinned: &Pinned, lookups: u64) -> Traffic {
        let Forecast { distinct, misses, .. } = Forecast::batch(self.skew, pinned, lookups);
        self.traffic(lookups, distinct.mean, misses.mean)
    }

    /// The traffic of the epoch in batches of `batch` lookups, the shorter last batch included, and of one flush of the updated pinned rows.
    ///
    /// # Panics
    /// If `batch` is 0.
    #[must_use]
    pub fn epoch(&self, pinned: &Pinned, batch: u64) -> Traffic {
        let lookups = self.lookups_of(self.budget.samples);
        let sizes = [(batch, lookups / batch), (lookups % batch, 1)];
        let Forecast { distinct, misses, .. } = Forecast::batches(self.skew, pinned, sizes);
        let mut traffic = self.traffic(lookups, distinct.mean, misses.mean);
        if self.budget.group.training {
            let touched = Forecast::batch(self.skew, pinned, lookups).touched;
            traffic.written += touched.mean * self.budget.group.record as f64;
        }
        traffic
    }

    fn traffic(&self, lookups: u64, distinct_rows: f64, crossing_rows: f64) -> Traffic {
        let read = crossing_rows * self.budget.group.record as f64;
        let written = if self.budget.group.training { read } else { 0.0 };
        Traffic { distinct_rows, index: 4.0 * lookups as f64, read, written }
    }

    /// Searches caches from no set to all sets that leave room for the smallest batch, then halves the gaps beside the cheapest, until its neighbours
    /// have been considered: one set more and one less, and the largest cache beside a batch of one sample more and less, and beside batches of which
    /// an epoch takes one more and one less.
    #[must_use]
    pub fn search(&self) -> Plan {
        let split = |sets| (sets, self.split(sets));
        let mut splits: BTreeMap<u32, Split> = self.sizes().map(split).collect();
        loop {
            let cheapest = splits.iter().min_by(|(_, a), (_, b)| a.cost.total_cmp(&b.cost));
            let best = cheapest.map_or(0, |(&sets, _)| sets);
            let before = splits.range(..best).next_back();
            let after = splits.range(best.saturating_add(1)..).next();
            let between = [before, after].into_iter().flatten().map(|(&other, _)| best.midpoint(other));
            // Among caches with as many batches the largest saves most, so the cost has steps.
            let (batch, samples) = (splits[&best].batch, self.budget.samples);
            let times = samples.div_ceil(batch);
            let even = [times.max(2) - 1, times, times + 1].map(|times| samples.div_ceil(times));
            let beside = [batch - 1, batch + 1].into_iter().chain(even).map(|batch| self.most_beside(batch));
            let new: Vec<u32> = between.chain(beside).filter(|sets| !splits.contains_key(sets)).collect();
            if new.is_empty() {
                return Plan { more: self.more_rows(best, &splits[&best]), splits, best };
            }
            splits.extend(new.into_iter().map(split));
        }
    }

    fn more_rows(&self, sets: u32, best: &Split) -> MoreRows {
        let used = self.ranked.map_or(self.skew.rows() as f64, |ranked| ranked.len() as f64);
        if best.pinned_rows >= used {
            MoreRows::AllRows
        } else if sets == self.budget.group.most_sets {
            MoreRows::AllWays
        } else if sets == self.most {
            MoreRows::NoRoom
        } else {
            // The search has tried it.
            MoreRows::DoesNotPay
        }
    }

    /// The sizes of the cache to consider first: towards both ends the distance to the end shrinks by a constant factor; and the largest caches beside
    /// few batches.
    fn sizes(&self) -> impl Iterator<Item = u32> {
        let (most, half) = (self.most, f64::from(self.most) / 2.0);
        let few = (1..=8).map(|times| self.most_beside(self.budget.samples.div_ceil(times)));
        let steps = (1..=POINTS).map(move |i| (half * half.max(1.0).powf(-f64::from(i) / f64::from(POINTS))) as u32);
        steps.flat_map(move |sets| [sets, most - sets]).chain([0, most / 2, most]).chain(few)
    }

    /// The split with `sets` sets and the largest batch that fits, because a larger batch never costs more.
    fn split(&self, sets: u32) -> Split {
        let Budget { bytes, sample, samples, smallest_batch, largest_batch, batch_cost, .. } = self.budget;
        let cache_bytes = u64::from(sets) * self.budget.group.slot * u64::from(WAYS);
        let beside = bytes.saturating_sub(cache_bytes).checked_div(sample).unwrap_or(u64::MAX);
        let batch = beside.min(samples).min(largest_batch).max(smallest_batch);
        let pinned = self.pinned(sets);
        let epoch_bytes = self.epoch(&pinned, self.lookups_of(batch)).bytes();
        let cost = epoch_bytes + samples.div_ceil(batch) as f64 * batch_cost;
        Split {
            pinned_rows: pinned.count(),
            cache_bytes,
            batch,
            epoch_bytes,
            cost,
            hit_rate: pinned.hit_rate(self.skew),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scars::law::Formula;
    use hotrow::GroupConfig;

    fn budget(bytes: u64, batch_cost: f64) -> Budget {
        let config = GroupConfig::new(&[1000], 4);
        let group =
            PlannedGroup { config, training: true, binding: 1 << 30, record: 24, slot: 40, lookup: 0, most_sets: 32 };
        let budget = Budget::new(bytes, 100, 100_000, &group);
        Budget { smallest_batch: 10, largest_batch: 1 << 30, batch_cost, ..budget }
    }

    /// The number of sets of the cheapest split, which is that of all sizes.
    fn cheapest_of_all(budget: Budget, skew: &Skew) -> (u32, Vec<f64>) {
        let planner = Planner::new(budget, skew, 1.0).unwrap();
        let (found, all) = (planner.search(), (0..=planner.most).map(|sets| planner.split(sets).cost));
        let all: Vec<f64> = all.collect();
        let slow = all.iter().copied().fold(f64::INFINITY, f64::min);
        assert_eq!(found.cheapest().cost, slow, "{} sets, of {}", found.best, planner.most);
        assert!(all.iter().filter(|&&cost| cost == slow).count() == 1, "a size that is not the best is dearer");
        (found.best, all)
    }

    #[test]
    fn the_cheapest_of_all_sizes_is_found() {
        let skew = Skew::of(Formula::Zipf(1.0), 1000).unwrap();
        let best = [0.0, 2000.0].map(|batch_cost| cheapest_of_all(budget(40_000, batch_cost), &skew).0);
        assert!((20..=31).contains(&best[0]) && (1..=30).contains(&best[1]), "{best:?}");

        let large = |sets, [sample, smallest, samples]: [u64; 3], batch_cost| {
            let mut budget = budget(sets * 1280 + sample * smallest, batch_cost);
            budget.smallest_batch = smallest;
            budget.group.most_sets = 1 << 20;
            Budget { sample, samples, ..budget }
        };
        // The search tries 70 to 110 sizes. Each case needs one of its parts, without which it finds a dearer size: the sizes beside few batches, those near
        // both ends, halved gaps, a batch of one sample less or more, one even batch fewer, as many even batches as the best, one more.
        type Case<'a> = (&'a [(u64, u64)], u64, [u64; 3], f64);
        let cases: [Case<'_>; 8] = [
            (&[(12, 102_197), (202, 3492)], 122, [4, 25, 27_350], 0.0),
            (&[(47, 20_083)], 30, [4, 276, 46_253], 0.0),
            (&[(202, 6654)], 98, [4, 129, 39_354], 0.0),
            (&[(227, 45_472)], 316, [10_000, 13, 100_080], 408.0),
            (&[(134, 18), (295, 1037), (9, 11_848), (3, 35)], 89, [4, 37, 372_827], 0.0),
            (&[(2368, 57_662)], 173, [100, 375, 16_794], 351.0),
            (&[(196, 3497), (50, 12), (9, 34_496)], 184, [4, 337, 310_914], 1609.0),
            (&[(9259, 49_040)], 64, [100, 131, 6254], 242.0),
        ];
        for (bins, sets, [sample, smallest, samples], batch_cost) in cases {
            let skew = Skew::from_bins(bins.iter().copied()).unwrap();
            cheapest_of_all(large(sets, [sample, smallest, samples], batch_cost), &skew);
        }

        // Where rows are used evenly and batches hold nearly all, a cache first costs more than it saves: the search must not stay at 0 sets.
        let even = Skew::of(Formula::Zipf(0.0), 100_000).unwrap();
        let (best, costs) = cheapest_of_all(large(2800, [4, 1000, 1_000_000], 0.0), &even);
        assert!(costs[..400].iter().all(|&cost| cost >= costs[0]) && costs[best as usize] < 0.91 * costs[0]);
    }

    #[test]
    fn tables_of_a_group_share_one_cache() {
        // Counted together and mixed, the tables have the same plan; with other shares of the lookups another one.
        let [hot, cold] = [(7, 64), (1, 6400)].map(|bin| Skew::from_bins([bin]).unwrap());
        let plan = |skew: &Skew| Planner::new(budget(40_000, 0.0), skew, 4.0).unwrap().search();
        let mixed = |lookups| plan(&Skew::mixed(&[(&cold, 1.0), (&hot, lookups)]).unwrap());
        let together = Skew::from_bins([(300, 64), (1, 6400)]).unwrap();
        let counted = plan(&Skew::mixed(&[(&together, 4.0)]).unwrap());
        let alike = |a: &Plan, b: &Plan| a.best == b.best && (a.cheapest().cost / b.cheapest().cost - 1.0).abs() < 1e-4;
        assert!(alike(&mixed(3.0), &counted) && !alike(&mixed(2.0), &counted), "{counted:?}");
        assert!(Skew::mixed(&[]).is_err() && Skew::mixed(&[(&hot, 0.0)]).is_err());
    }

    #[test]
    fn the_shorter_last_batch_is_one_of_its_own() {
        let skew = Skew::of(Formula::Zipf(0.0), 1000).unwrap();
        let mut budget = Budget { samples: 3000, ..budget(40_000, 0.0) };
        budget.group.record = 10;
        let planner = Planner::new(budget.clone(), &skew, 1.0).unwrap();
        let pinned = Pinned::by_rank(&skew, 4, 25);
        assert_eq!(pinned.count(), 100.0);
        let seen = |lookups: i32| 1.0 - 0.999_f64.powi(lookups);
        let found = planner.epoch(&pinned, 2000);
        // In each batch 900 rows can miss; the flush writes those of the 100 pinned rows that were touched.
        let read = 9000.0 * (seen(2000) + seen(1000));
        assert!((found.read - read).abs() < 1e-6, "{found:?}, wanted {read}");
        assert!((found.written - read - 1000.0 * seen(3000)).abs() < 1e-6, "{found:?}");
        assert_eq!(found.index, 12_000.0);
        assert!((planner.batch(&pinned, 2000).read * 1.5 / read - 1.0).abs() > 0.05, "no one and a half batches");
        budget.group.training = false;
        let reading = Planner::new(budget, &skew, 1.0).unwrap();
        assert_eq!(reading.epoch(&pinned, 2000).written, 0.0);
    }

    #[test]
    fn why_no_more_rows_are_pinned() {
        let (skew, few) = (Skew::of(Formula::Zipf(1.0), 1000).unwrap(), Skew::of(Formula::Zipf(0.0), 3).unwrap());
        let why = |budget, skew: &Skew| Planner::new(budget, skew, 1.0).unwrap().search().more;
        assert_eq!(why(budget(40_000, 2000.0), &skew), MoreRows::DoesNotPay);
        assert_eq!(why(Budget { largest_batch: 10, ..budget(20_000, 0.0) }, &skew), MoreRows::NoRoom);
        assert_eq!(why(budget(1 << 30, 0.0), &skew), MoreRows::AllRows, "the cache covers the table");
        let mut narrow = budget(1 << 30, 0.0);
        narrow.group.most_sets = 20;
        assert_eq!(why(narrow, &skew), MoreRows::AllWays);
        assert_eq!(why(budget(1 << 20, 0.0), &few), MoreRows::AllRows);
    }

    #[test]
    fn what_cannot_be_planned_is_refused_by_name() {
        let (skew, fine) = (Skew::of(Formula::Zipf(0.0), 10).unwrap(), budget(1000, 0.0));
        let refused = [
            (Budget { samples: 0, ..fine.clone() }, 1.0, "smallest batch"),
            (Budget { bytes: 999, ..fine.clone() }, 1.0, "budget"),
            (Budget { smallest_batch: 0, ..fine.clone() }, 1.0, "smallest batch"),
            (Budget { batch_cost: f64::NAN, ..fine.clone() }, 1.0, "cost of a batch"),
            (Budget { batch_cost: -1.0, ..fine.clone() }, 1.0, "cost of a batch"),
            (fine.clone(), 0.0, "lookups of a sample"),
        ];
        for (budget, per_sample, wanted) in refused {
            let Err(Error::Argument { what, .. }) = Planner::new(budget, &skew, per_sample) else {
                panic!("{wanted} was accepted")
            };
            assert_eq!(what, wanted);
        }
        // A memory without room for a set still has a plan.
        assert_eq!(Planner::new(fine, &skew, 1.0).unwrap().search().cheapest().pinned_rows, 0.0);
    }
}
