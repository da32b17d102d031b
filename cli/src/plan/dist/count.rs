//! Counts the bytes of each step of a trace: every row, access and bag, and the cache replayed with its dirty slots.

use super::bill::{Bill, Hot, Speed, imbalance};
use super::cache::Cache;
use super::deal::Batches;
use super::wire::{Asked, Phase, Wire};
use crate::progress::Progress;
use hotrow::Pooling;
use rayon::prelude::*;
use std::collections::HashMap;

/// The bill of a trace: the mean step, and what only single steps show.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    pub(super) mean: Bill,
    pub(super) steps: u64,
    /// The most bytes from one rank to another in one step.
    pub(super) largest_pair: f64,
    /// The largest rank's bytes over the mean rank's, mean of all steps.
    pub(super) imbalance: f64,
    /// Seconds of each phase, and of the own work, mean of all steps.
    pub(super) seconds: ([f64; 5], f64),
    /// The most bytes that a rank sends and receives in one phase of a step.
    pub(super) largest_message: f64,
}

/// The hottest rows, by the number of the range that has them.
#[derive(Debug)]
pub(super) struct Ranges(HashMap<u32, usize>);

impl Ranges {
    /// `ends` are the ascending ends of the ranges of `hottest`.
    pub(super) fn new(hottest: &[u32], ends: &[u32]) -> Self {
        let mut ranges = HashMap::new();
        for (rank, &row) in hottest.iter().enumerate() {
            let range = ends.partition_point(|&end| end as usize <= rank);
            if range == ends.len() {
                break;
            }
            ranges.insert(row, range);
        }
        Self(ranges)
    }

    fn of(&self, row: u32) -> Option<usize> {
        self.0.get(&row).copied()
    }
}

/// Counts every step for each of `wires`, which differ in their ranks only.
pub(super) fn count(
    batches: &Batches,
    cache: &Cache,
    hottest: &[u32],
    ends: &[u32],
    wires: &[Wire],
    speed: &Speed,
) -> anyhow::Result<Vec<Counted>> {
    let ranges = Ranges::new(hottest, ends);
    let mut replay = cache.replay(hottest)?;
    let mut counted: Vec<Counted> =
        wires.iter().map(|&wire| Counted::new(Bill::new(wire, ends.len()), batches.steps() as u64)).collect();
    let progress = Progress::new("plan dist", batches.accesses() as u64);
    for step in 0..batches.steps() {
        let all = batches.all(step);
        let mut distinct = all.clone();
        distinct.par_sort_unstable();
        distinct.dedup();
        if let Some(cache) = &mut replay {
            cache.step(&all);
        }
        // The slots as the admissions leave them: a row of this batch that LFU evicts is written back first, and goes as its record.
        let is_dirty = |row: &u32| replay.as_ref().is_some_and(|cache| cache.is_dirty(*row));
        let dirty: Vec<u32> = distinct.iter().copied().filter(is_dirty).collect();
        if let Some(cache) = &mut replay {
            cache.backward();
        }
        let rows = Rows { distinct: &distinct, dirty: &dirty, ranges: &ranges, ends: ends.len() };
        counted.par_iter_mut().for_each(|counted| counted.add(&rows.bill(batches, step, counted.mean.wire), speed));
        progress.advance(all.len() as u64);
    }
    counted.iter_mut().for_each(Counted::divide);
    Ok(counted)
}

impl Counted {
    /// The bill of an expected step, from which the extremes of single steps do not follow: those of the mean step stand in for them.
    pub(super) fn expected(mean: &Bill, steps: u64, speed: &Speed) -> Self {
        let mut one = Self::new(Bill::new(mean.wire, mean.hot.len()), steps);
        one.add(mean, speed);
        one
    }

    /// The sum of no step.
    fn new(mean: Bill, steps: u64) -> Self {
        let (largest_pair, imbalance, largest_message) = (0.0, 0.0, 0.0);
        Self { mean, steps, largest_pair, imbalance, seconds: ([0.0; 5], 0.0), largest_message }
    }

    fn add(&mut self, step: &Bill, speed: &Speed) {
        self.mean.add(step);
        self.largest_pair = self.largest_pair.max(step.largest_pair(&Phase::ALL).map_or(0.0, |(_, bytes)| bytes));
        self.largest_message = self.largest_message.max(step.largest_message());
        self.imbalance += imbalance(&step.through());
        let (phases, own) = &mut self.seconds;
        phases.iter_mut().zip(step.exchange_seconds(speed)).for_each(|(sum, seconds)| *sum += seconds);
        *own += step.own_seconds(speed);
    }

    fn divide(&mut self) {
        let steps = self.steps as f64;
        let empty = Bill::new(self.mean.wire, 0);
        self.mean = std::mem::replace(&mut self.mean, empty).mean(steps);
        self.imbalance /= steps;
        self.seconds.0.iter_mut().for_each(|seconds| *seconds /= steps);
        self.seconds.1 /= steps;
    }
}

/// The rows of a batch of all ranks, ascending, and those of them that are dirty.
struct Rows<'a> {
    distinct: &'a [u32],
    dirty: &'a [u32],
    ranges: &'a Ranges,
    ends: usize,
}

impl Rows<'_> {
    fn bill(&self, batches: &Batches, step: usize, wire: Wire) -> Bill {
        let mut bill = Bill::new(wire, self.ends);
        bill.distinct = self.distinct.len() as f64;
        for range in self.distinct.iter().filter_map(|&row| self.ranges.of(row)) {
            bill.hot[range].used += 1.0;
        }
        for rank in 0..wire.ranks {
            self.requester(batches, step, rank, &mut bill);
        }
        bill
    }

    /// Adds what one rank asks of all ranks.
    fn requester(&self, batches: &Batches, step: usize, rank: u32, bill: &mut Bill) {
        let wire = bill.wire;
        let mut ids = Vec::new();
        let mut of = vec![Asked::default(); wire.ranks as usize];
        let mut last_bag = vec![u32::MAX; wire.ranks as usize];
        let mut sums = Vec::new();
        for (bag, accesses) in (0..).zip(batches.part(step, rank, wire.ranks)) {
            for &id in accesses {
                let owner = wire.owner(id % wire.shards) as usize;
                of[owner].accesses += 1.0;
                // Without pooling every access is a bag of its own.
                if last_bag[owner] != bag || wire.pooling == Pooling::None {
                    of[owner].bags += 1.0;
                    last_bag[owner] = bag;
                }
            }
            bill.outputs[rank as usize] += if wire.pooling == Pooling::None { accesses.len() as f64 } else { 1.0 };
            ids.extend_from_slice(accesses);
            if wire.form.summed {
                let slice = batches.slice(bag, rank, (wire.ranks, wire.shards));
                sums.extend(accesses.iter().map(|&id| (id, slice)));
            }
        }
        sums.sort_unstable();
        sums.dedup();
        sums.iter().for_each(|(id, _)| of[wire.owner(id % wire.shards) as usize].sums += 1.0);
        bill.part[rank as usize] = ids.len() as f64;
        ids.sort_unstable();
        ids.dedup();
        let mut of_shard = vec![0_u32; wire.shards as usize];
        let mut dirty = self.dirty;
        for id in ids {
            let shard = id % wire.shards;
            of_shard[shard as usize] += 1;
            dirty = &dirty[dirty.partition_point(|&row| row < id)..];
            let is_dirty = f64::from(u8::from(dirty.first() == Some(&id)));
            let owner = wire.owner(shard);
            of[owner as usize].dirty += is_dirty;
            if owner != rank
                && let Some(range) = self.ranges.of(id)
            {
                let hot = &mut bill.hot[range];
                *hot = Hot { asked: hot.asked + 1.0, dirty: hot.dirty + is_dirty, ..*hot };
            }
        }
        for (shard, &rows) in (0..).zip(&of_shard) {
            let asked = &mut of[wire.owner(shard) as usize];
            asked.rows += f64::from(rows);
            asked.bit_words += f64::from(rows.div_ceil(32));
        }
        for (owner, asked) in of.iter_mut().enumerate() {
            bill.owned[owner] += asked.accesses;
            asked.half_words = (asked.accesses / 2.0).ceil();
            asked.row_words = (asked.rows / 2.0).ceil();
            asked.any = f64::from(u8::from(asked.accesses > 0.0));
            if owner == rank as usize {
                bill.own_rows += asked.rows;
            } else {
                bill.ask(rank as usize, owner, asked);
            }
        }
    }
}
