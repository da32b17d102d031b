//! Splits one memory between cached rows and the batch.

use std::{cmp::Ordering, collections::BinaryHeap};

use crate::{
    error::Error,
    scars::{
        budget::Budget,
        refused, share,
        traffic::{Bytes, Table, Workload},
    },
};

/// The search ignores splits that are cheaper by less than this share.
const GAP: f64 = 1e-6;
/// The most splits that are tried before the search ends with a larger gap, which [`Split::gap`] states.
const EVALUATIONS: u32 = 5000;

/// A planning problem: tables, an epoch and a memory.
///
/// Example: the [module](crate::scars).
#[derive(Clone, Debug)]
pub struct Planner {
    tables: Vec<Table>,
    workload: Workload,
    budget: Budget,
    batches: (u64, u64),
}

/// A split of the memory, and its cost.
///
/// Example: the [module](crate::scars).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Split {
    /// For each table, the number of its hottest rows that are pinned.
    pub pinned: Vec<u64>,
    /// Samples of a batch.
    pub batch: u64,
    /// Batches of an epoch; the last may be shorter.
    pub batches: u64,
    /// Share of all lookups that find their row pinned, 0 to 1.
    pub hit_rate: f64,
    /// Expected bytes of a full batch.
    pub of_batch: Bytes,
    /// Expected bytes of an epoch, one flush included.
    pub of_epoch: Bytes,
    /// The minimised cost: the bytes of an epoch, plus the fixed cost of its batches.
    pub cost: f64,
    /// Number of splits tried to find this one.
    pub evaluations: u32,
    /// No split of this budget costs less than `cost * (1 - gap)`; `None` where nothing was searched.
    pub gap: Option<f64>,
}

impl Planner {
    /// Makes a planner, after checking that a plan exists.
    ///
    /// # Errors
    /// [`Error::Scars`] without tables or samples, for a smallest batch of 0 or larger than an epoch, for a fixed cost
    /// that is negative or NaN, and for a budget that the smallest batch does not fit.
    pub fn new(tables: Vec<Table>, workload: Workload, budget: Budget) -> Result<Self, Error> {
        if tables.is_empty() {
            return Err(refused("tables", "1 or more", &0, "give a table"));
        }
        if workload.samples == 0 {
            return Err(refused("samples", "1 or more", &0, "give the samples of an epoch"));
        }
        let batches = budget.batches(&workload)?;
        Ok(Self { tables, workload, budget, batches })
    }

    /// The tables.
    #[must_use]
    pub fn tables(&self) -> &[Table] {
        &self.tables
    }

    /// The epoch.
    #[must_use]
    pub const fn workload(&self) -> &Workload {
        &self.workload
    }

    /// The memory.
    #[must_use]
    pub const fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The smallest and the largest batch that fit, in samples.
    #[must_use]
    pub const fn batches(&self) -> (u64, u64) {
        self.batches
    }

    /// The split with a batch of `batch` samples: the memory beside it goes to the rows that save most for each byte.
    ///
    /// # Errors
    /// [`Error::Scars`] for a batch outside [`Planner::batches`].
    pub fn at_batch(&self, batch: u64) -> Result<Split, Error> {
        let (few, many) = self.batches;
        if !(few..=many).contains(&batch) {
            return Err(refused(
                "batch",
                format!("{few} to {many} samples"),
                &batch,
                "choose a batch that fits the budget",
            ));
        }
        Ok(self.split(self.pins(batch), batch))
    }

    /// The split that pins `pinned[t]` of the hottest rows of each table t: the memory beside them goes to the batch
    /// (eq. 7, whole samples).
    ///
    /// # Errors
    /// [`Error::Scars`] for another number of tables, for more rows than a table has, and for rows that leave no room
    /// for the smallest batch.
    pub fn at_pinned(&self, pinned: &[u64]) -> Result<Split, Error> {
        if pinned.len() != self.tables.len() {
            return Err(refused(
                "pinned rows",
                format!("{} numbers", self.tables.len()),
                &pinned.len(),
                "give one for each table",
            ));
        }
        for (&rows, table) in pinned.iter().zip(&self.tables) {
            if rows > table.skew.rows() {
                let wanted = format!("at most the table's {} rows", table.skew.rows());
                return Err(refused("pinned rows", wanted, &rows, "pin fewer"));
            }
        }
        let slots =
            pinned.iter().zip(&self.tables).map(|(&rows, table)| u128::from(rows) * u128::from(table.bytes.slot));
        let slots: u128 = slots.sum();
        let batch = self.budget.batch_beside(slots, &self.workload).filter(|&batch| batch >= self.batches.0);
        let Some(batch) = batch else {
            let wanted = format!("at most {} bytes of slots", self.budget.for_rows(self.batches.0));
            return Err(refused("pinned rows", wanted, &slots, "pin fewer, or raise the budget"));
        };
        Ok(self.split(pinned.to_vec(), batch))
    }

    /// The best split: its epoch costs least.
    ///
    /// More pinned rows beside the same batch never cost more, nor does a larger batch beside the same pinned rows (the
    /// expected transfers of a row are concave in the lookups). So no batch from b to B costs less than a batch of B
    /// beside the rows of b. The search halves ranges, the one with the lowest bound first, until no range can hold a
    /// split that is cheaper by [`Split::gap`].
    ///
    /// This holds for any distribution. The cost may have several minima: as a function of the batch it falls, rises
    /// and falls again within the rows of one probability. The binary search of SCARS
    /// ([`Marginal::search`](crate::scars::marginal::Marginal::search)) finds one of them, in fewer steps.
    #[must_use]
    pub fn best(&self) -> Split {
        let slots_differ = self.tables.iter().any(|table| table.bytes.slot != self.tables[0].bytes.slot);
        let look = |batch| {
            let pinned = self.pins(batch);
            (self.cost(batch, &pinned), batch, pinned)
        };
        // The batches strictly between two that were tried; `None` if there are none.
        let between = |few: u64, many: u64| {
            let (few, many) = (few + 1, many.checked_sub(1)?);
            let bound = || self.cost(many, &self.pins_for(few, many, slots_differ));
            (few <= many).then(|| Range { bound: bound(), few, many })
        };
        let (few, many) = self.batches;
        let (mut best, last) = (look(few), look(many));
        if last.0 < best.0 {
            best = last;
        }
        let (mut evaluations, mut gap) = (2, 0.0);
        let mut open: BinaryHeap<Range> = between(few, many).into_iter().collect();
        while let Some(Range { bound, few, many }) = open.pop() {
            if bound >= best.0 * (1.0 - GAP) || evaluations >= EVALUATIONS {
                // Rounding may put the bound above the best cost.
                gap = ((best.0 - bound) / best.0).max(0.0);
                break;
            }
            let middle = few + (many - few) / 2;
            let found = look(middle);
            if found.0 < best.0 {
                best = found;
            }
            evaluations += 1;
            open.extend(between(few - 1, middle).into_iter().chain(between(middle, many + 1)));
        }
        let (_, batch, pinned) = best;
        Split { evaluations, gap: Some(gap), ..self.split(pinned, batch) }
    }

    fn pins(&self, batch: u64) -> Vec<u64> {
        share::pinned(&self.tables, &self.workload, batch, self.budget.for_rows(batch), false)
    }

    /// The best pinned rows for batches of `many`, in the memory that a batch of `few` leaves.
    fn pins_for(&self, few: u64, many: u64, over: bool) -> Vec<u64> {
        share::pinned(&self.tables, &self.workload, many, self.budget.for_rows(few), over)
    }

    fn epoch(&self, batch: u64, pinned: &[u64]) -> Bytes {
        self.tables.iter().zip(pinned).map(|(table, &pinned)| table.epoch(&self.workload, batch, pinned)).sum()
    }

    fn cost(&self, batch: u64, pinned: &[u64]) -> f64 {
        self.epoch(batch, pinned).total() + self.workload.batches(batch) as f64 * self.budget.batch_cost
    }

    fn split(&self, pinned: Vec<u64>, batch: u64) -> Split {
        let each = || self.tables.iter().zip(&pinned);
        let lookups: f64 = self.tables.iter().map(|table| table.lookups).sum();
        let hits: f64 = each().map(|(table, &pinned)| table.lookups * table.skew.mass(pinned)).sum();
        let of_batch = each().map(|(table, &pinned)| table.batch(&self.workload, batch, pinned)).sum();
        let (of_epoch, cost) = (self.epoch(batch, &pinned), self.cost(batch, &pinned));
        let batches = self.workload.batches(batch);
        Split { hit_rate: hits / lookups, of_batch, of_epoch, cost, batches, batch, pinned, evaluations: 1, gap: None }
    }
}

/// The batches from `few` to `many`; none of them costs less than `bound`.
#[derive(Clone, Copy, Debug)]
struct Range {
    bound: f64,
    few: u64,
    many: u64,
}

impl Ord for Range {
    fn cmp(&self, other: &Self) -> Ordering {
        // Reversed, because the heap returns its greatest element first.
        other.bound.total_cmp(&self.bound).then(self.few.cmp(&other.few))
    }
}

impl PartialOrd for Range {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Range {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Range {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::scars::{distinct::Draws, marginal::Marginal, skew::Skew, traffic::RowBytes};

    fn table(skew: Skew, slot: u64, lookups: f64) -> Table {
        Table::new(skew, RowBytes { record: 24, slot, index: 4 }, lookups).unwrap()
    }

    fn budget(bytes: u64, sample: u64) -> Budget {
        Budget { bytes, sample, smallest_batch: 1, batch_cost: 0.0 }
    }

    /// The least cost of an epoch over all batches and all numbers of pinned rows that fit.
    fn slow(planner: &Planner) -> f64 {
        let mut least = f64::INFINITY;
        for batch in planner.batches.0..=planner.batches.1 {
            let left = planner.budget.bytes - batch * planner.budget.sample;
            least = least.min(slow_beside(planner, batch, left));
        }
        least
    }

    /// Every choice of pinned rows within `bytes`.
    fn slow_beside(planner: &Planner, batch: u64, bytes: u64) -> f64 {
        let mut choices: Vec<(u64, Vec<u64>)> = vec![(bytes, Vec::new())];
        for table in &planner.tables {
            choices = choices
                .into_iter()
                .flat_map(|(left, pinned)| {
                    let (rows, slot) = (table.skew.rows().min(left / table.bytes.slot), table.bytes.slot);
                    (0..=rows).map(move |rows| (left - rows * slot, [&pinned[..], &[rows]].concat()))
                })
                .collect();
        }
        choices.iter().map(|(_, pinned)| planner.cost(batch, pinned)).fold(f64::INFINITY, f64::min)
    }

    fn skews() -> impl Strategy<Value = Skew> {
        let counts = prop_oneof![Just(0u64), Just(1), 1u64..10, 1u64..1000];
        prop_oneof![
            prop::collection::vec(counts, 1..40).prop_filter_map("no lookups", |counts| Skew::from_counts(counts).ok()),
            // Few hot rows, and many cold rows of one count.
            (1usize..5, 1u64..500, 1usize..40).prop_map(|(hot, count, cold)| {
                let counts = std::iter::repeat_n(count, hot).chain(std::iter::repeat_n(1, cold));
                Skew::from_counts(counts).unwrap()
            }),
            (1u64..40, 0.0..2.0).prop_map(|(rows, s)| Skew::zipf(rows, s).unwrap()),
            (1u64..40, 0.1..50.0).prop_map(|(rows, scale)| Skew::exponential(rows, scale).unwrap()),
            (1u64..40, 0.1..50.0).prop_map(|(rows, scale)| Skew::half_normal(rows, scale).unwrap()),
        ]
    }

    fn workloads() -> impl Strategy<Value = Workload> {
        let draws = prop_oneof![Just(Draws::Independent), Just(Draws::Epoch)];
        (1u64..200, any::<bool>(), draws).prop_map(|(samples, training, draws)| Workload { samples, training, draws })
    }

    fn budgets() -> impl Strategy<Value = Budget> {
        (1u64..2000, 0u64..60, 1u64..8, prop_oneof![Just(0.0), 0.0..3000.0]).prop_map(
            |(bytes, sample, smallest_batch, batch_cost)| Budget { bytes, sample, smallest_batch, batch_cost },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_best_split_is_that_of_brute_force(skew in skews(), slot in 1u64..80, lookups in prop_oneof![Just(1.0), Just(4.0), 0.3..5.0], workload in workloads(), budget in budgets()) {
            let Ok(planner) = Planner::new(vec![table(skew, slot, lookups)], workload, budget) else {
                prop_assert!(budget.bytes < budget.sample * budget.smallest_batch || budget.smallest_batch > workload.samples);
                return Ok(());
            };
            let (found, wanted) = (planner.best(), slow(&planner));
            prop_assert!((found.cost - wanted).abs() <= 1.1e-6 * wanted, "{:?}, wanted {}", found, wanted);
            let used = found.pinned[0] * slot + found.batch * budget.sample;
            prop_assert!(used <= budget.bytes && found.batch >= budget.smallest_batch);
            prop_assert_eq!(found.cost, planner.at_batch(found.batch).unwrap().cost);
            prop_assert!(found.gap.unwrap() <= 1e-6);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn tables_share_one_memory(
            skews in prop::collection::vec(skews(), 2..4), slots in [1u64..6, 1u64..6, 1u64..6], same in any::<bool>(),
            workload in workloads(), rows in 1u64..60, sample in 0u64..40, batches in 1u64..12, batch_cost in 0.0..500.0,
        ) {
            // Up to 12 batches to try.
            let budget = Budget { bytes: rows * 6 + batches * sample, sample, smallest_batch: 1, batch_cost };
            let workload = Workload { samples: workload.samples.min(40), ..workload };
            let tables: Vec<Table> = skews.into_iter().zip(slots).enumerate()
                .map(|(i, (skew, slot))| table(skew, if same { 6 } else { slot * 6 }, 1.0 + i as f64)).collect();
            prop_assume!(tables.iter().map(|table| table.skew.rows()).product::<u64>() < 5000);
            let planner = Planner::new(tables, workload, budget).unwrap();
            prop_assume!(planner.batches.1 <= 40);
            let (found, wanted) = (planner.best(), slow(&planner));
            // With slots of several sizes the choice is short of the best by less than one row saves.
            let one = |table: &Table| table.saved(&workload, found.batch, table.skew.rest(0).next().unwrap());
            let spare = if same { 0.0 } else { planner.tables.iter().map(one).fold(0.0, f64::max) };
            prop_assert!(found.cost >= wanted * (1.0 - 1e-9));
            prop_assert!(found.cost <= wanted * (1.0 + 1.1e-6) + spare, "{:?}, wanted {}", found, wanted);
        }
    }

    #[test]
    fn brute_force_rejects_a_split_that_is_not_the_best() {
        let skew = Skew::from_counts([90, 50, 20, 9, 9, 3, 1, 1, 1, 1]).unwrap();
        let given = Budget { smallest_batch: 2, batch_cost: 200.0, ..budget(400, 30) };
        let planner = Planner::new(vec![table(skew, 40, 2.0)], Workload::training(100), given).unwrap();
        let (found, wanted) = (planner.best(), slow(&planner));
        assert!((found.cost / wanted - 1.0).abs() < 1e-6);
        let (few, many) = planner.batches();
        assert!(few < found.batch && found.batch < many, "between the ends: {found:?}");
        for batch in [few, found.batch - 1, found.batch + 1, many] {
            assert!(planner.at_batch(batch).unwrap().cost > wanted * 1.001, "{batch}");
        }
        assert!(planner.at_pinned(&[found.pinned[0] - 1]).unwrap().cost > wanted * 1.001);
    }

    #[test]
    fn large_splits_are_found_in_few_steps() {
        for skew in [
            Skew::zipf(1_000_000_000, 1.0).unwrap(),
            Skew::exponential(1_000_000_000, 1e6).unwrap(),
            Skew::half_normal(1_000_000_000, 1e7).unwrap(),
        ] {
            let given = Budget { smallest_batch: 256, batch_cost: 1e6, ..budget(1 << 30, 4096) };
            let planner = Planner::new(vec![table(skew, 200, 26.0)], Workload::training(100_000_000), given).unwrap();
            let best = planner.best();
            assert!(best.gap.unwrap() <= 1e-5, "{best:?}");
            for batch in [256, best.batch / 2, best.batch.midpoint(planner.batches().1), planner.batches().1] {
                assert!(planner.at_batch(batch.max(256)).unwrap().cost >= best.cost);
            }
        }
    }

    #[test]
    fn the_papers_search_finds_the_same() {
        // Only reads, no indices, and an epoch that is long against any batch: eq. 6 and 7, in whole samples.
        for skew in [
            Skew::zipf(1_000_000, 1.0).unwrap(),
            Skew::exponential(1_000_000, 2e4).unwrap(),
            Skew::half_normal(1_000_000, 3e4).unwrap(),
        ] {
            let marginal = Marginal::new(&skew, 2e6, 40.0, 25.0, 2000.0).unwrap();
            let bytes = RowBytes { record: 24, slot: 40, index: 0 };
            let given = Budget { bytes: 2_000_000, sample: 25, smallest_batch: 1, batch_cost: 2000.0 * 24.0 };
            let one = Table::new(skew.clone(), bytes, 1.0).unwrap();
            let best = Planner::new(vec![one], Workload::inference(1 << 40), given).unwrap().best();
            let of_paper = marginal.cost(marginal.search()) * 24.0 * (1u64 << 40) as f64;
            assert!((best.cost / of_paper - 1.0).abs() < 2e-5, "{} {of_paper}", best.cost);
            let found = marginal.search();
            assert!(0 < found && found < marginal.most(), "{found}");
            assert!(best.pinned[0].abs_diff(found) < found / 20, "{found} {best:?}");
        }
    }

    #[test]
    fn figures_of_a_split() {
        let skew = Skew::from_counts([5, 3, 1, 1]).unwrap();
        let planner = Planner::new(vec![table(skew, 100, 1.0)], Workload::training(10), budget(250, 20)).unwrap();
        assert_eq!(planner.batches(), (1, 10));
        let split = planner.at_pinned(&[2]).unwrap();
        assert_eq!((split.batch, split.batches, split.pinned.clone()), (2, 5, vec![2]));
        assert!((split.hit_rate - 0.8).abs() < 1e-12);
        assert_eq!(split, planner.at_batch(2).unwrap());
        // Each cold row is read with probability 0.19.
        assert!((split.of_batch.read - 2.0 * 0.19 * 24.0).abs() < 1e-9 && split.of_batch.index == 8.0);
        assert_eq!(split.cost, split.of_epoch.total());
    }

    #[test]
    fn what_cannot_be_planned_is_refused_by_name() {
        let one = || table(Skew::uniform(10).unwrap(), 100, 1.0);
        let (workload, fine) = (Workload::training(100), budget(1000, 10));
        let new = |budget| Planner::new(vec![one()], workload, budget);
        let planner = new(fine).unwrap();
        let refused = [
            (Planner::new(Vec::new(), workload, fine).err(), "tables"),
            (Planner::new(vec![one()], Workload::training(0), fine).err(), "samples"),
            (new(budget(9, 10)).err(), "budget"),
            (new(Budget { smallest_batch: 50, bytes: 499, ..fine }).err(), "budget"),
            (new(Budget { smallest_batch: 0, ..fine }).err(), "smallest batch"),
            (new(Budget { smallest_batch: 101, ..fine }).err(), "smallest batch"),
            (new(Budget { batch_cost: f64::NAN, ..fine }).err(), "cost of a batch"),
            (new(Budget { batch_cost: -1.0, ..fine }).err(), "cost of a batch"),
            (planner.at_batch(0).err(), "batch"),
            (planner.at_batch(101).err(), "batch"),
            (planner.at_pinned(&[11]).err(), "pinned rows"),
            (planner.at_pinned(&[10]).err(), "pinned rows"),
            (planner.at_pinned(&[1, 1]).err(), "pinned rows"),
        ];
        for (error, wanted) in refused {
            let Some(Error::Scars { what, .. }) = error else { panic!("{wanted} was accepted") };
            assert_eq!(what, wanted);
        }
        assert_eq!(planner.at_pinned(&[9]).unwrap().batch, 10);
        // A memory without room for a row still has a plan.
        assert_eq!(new(budget(99, 0)).unwrap().best().pinned, [0]);
    }
}
