//! The steps of a trace: replayed through the cache, which says what is dirty, and run by groups over ranks, which count their bytes.

use super::wire::{PHASES, Wire};
use hotrow::{Bags, CpuGroup, GroupConfig, Lookup as _, Mode, Policy, WAYS};
use hotrow_dist::{self as dist, Comm as _, Threads};
use hotrow_plan::simulate::Simulator;
use hotrow_report::clock::timed;
use hotrow_report::object::Object;
use std::collections::BTreeMap;

/// The cache of a group over all ranks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cache {
    pub(super) policy: Policy,
    pub(super) window_ways: u32,
    /// Rows asked for; 0: no cache.
    pub(super) rows: u32,
    pub(super) shards: u32,
}

impl Cache {
    /// Sets of each shard (SPEC 11).
    pub(super) const fn sets_of_shard(&self) -> u32 {
        self.rows.div_ceil(WAYS * self.shards)
    }
}

/// Accesses cut into the batches of all ranks.
#[derive(Debug)]
pub(crate) struct Batches {
    pub(crate) ids: Vec<u32>,
    /// The start of each bag, and the end of the last one.
    pub(crate) offsets: Vec<u32>,
    /// The bags in the order in which they are dealt, in whole batches.
    pub(crate) order: Vec<u32>,
    pub(crate) batch: u32,
}

impl Batches {
    pub(super) fn steps(&self) -> usize {
        self.order.len() / self.batch as usize
    }

    /// The bags of a rank's part of a step: contiguous, equal within one bag (SPEC 11).
    fn part(&self, step: usize, rank: u32, ranks: u32) -> impl Iterator<Item = &[u32]> {
        let end = |parts: u32| (u64::from(self.batch) * u64::from(parts) / u64::from(ranks)) as usize;
        let first = step * self.batch as usize;
        self.order[first + end(rank)..first + end(rank + 1)].iter().map(|&bag| {
            let ends = &self.offsets[bag as usize..bag as usize + 2];
            &self.ids[ends[0] as usize..ends[1] as usize]
        })
    }

    /// The lengths of the bags, with their shares.
    pub(super) fn lengths(&self) -> Vec<(f64, f64)> {
        let mut all: BTreeMap<u32, u32> = BTreeMap::new();
        for &bag in &self.order {
            *all.entry(self.offsets[bag as usize + 1] - self.offsets[bag as usize]).or_default() += 1;
        }
        let bags = self.order.len() as f64;
        all.into_iter().map(|(length, times)| (length.into(), f64::from(times) / bags)).collect()
    }

    /// Plays all steps through the cache. Returns rows with the share of the steps that ask for them while their slot is dirty.
    pub(super) fn dirty(&self, cache: &Cache, rows: u32) -> Result<Vec<(u32, f64)>, hotrow::Error> {
        if cache.rows == 0 {
            return Ok(Vec::new());
        }
        // Row g is row g / shards of shard g mod shards (SPEC 11).
        let replay = |shard: u32| {
            let rows = rows.saturating_sub(shard).div_ceil(cache.shards).max(1);
            let cached = cache.sets_of_shard().saturating_mul(WAYS).min(rows);
            let config = GroupConfig::new(&[rows], 1).with_policy(cache.policy).with_cache_rows(cached);
            Simulator::new(&config.with_window_ways(cache.window_ways))
        };
        let mut replays = (0..cache.shards).map(replay).collect::<Result<Vec<_>, _>>()?;
        let mut dirty: BTreeMap<u32, u32> = BTreeMap::new();
        for step in 0..self.steps() {
            let mut ids: Vec<u32> = self.part(step, 0, 1).flatten().copied().collect();
            let mut of_shards = vec![Vec::new(); replays.len()];
            ids.iter().for_each(|id| of_shards[(id % cache.shards) as usize].push(id / cache.shards));
            replays.iter_mut().zip(&of_shards).for_each(|(replay, ids)| replay.step(ids));
            ids.sort_unstable();
            ids.dedup();
            // After the admissions: a row of this batch that leaves is written back first, and goes as its record.
            for id in ids.into_iter().filter(|&id| replays[(id % cache.shards) as usize].is_dirty(id / cache.shards)) {
                *dirty.entry(id).or_default() += 1;
            }
            replays.iter_mut().for_each(Simulator::backward);
        }
        Ok(dirty.into_iter().map(|(row, times)| (row, f64::from(times) / self.steps() as f64)).collect())
    }

    /// Runs every step. Returns the bytes of each phase of a step, over all ranks.
    pub(super) fn run(&self, cache: &Cache, rows: u32, wire: &Wire) -> Result<[f64; 5], hotrow::Error> {
        let config = GroupConfig::new(&[rows], wire.dim)
            .with_precision(wire.precision)
            .with_pooling(wire.pooling)
            .with_policy(cache.policy)
            .with_window_ways(cache.window_ways)
            .with_cache_rows(cache.rows);
        let ranks = self.play(&config, [wire.ranks, wire.shards], wire.form, wire.weighted)?;
        let bytes = |phase| ranks.iter().map(|rank| rank.traffic.bytes(phase)).sum::<u64>() as f64;
        Ok(dist::Phase::ALL.map(|phase| bytes(phase) / self.steps() as f64))
    }

    /// Runs every step forward and backward on ranks that are threads of this process.
    pub(crate) fn play(
        &self,
        config: &GroupConfig,
        [ranks, shards]: [u32; 2],
        wire: dist::WireOptions,
        weighted: bool,
    ) -> Result<Vec<Seen>, hotrow::Error> {
        Threads::run(ranks, |comm: &mut Threads| {
            let mut group = dist::Group::new(comm, config.clone(), shards, CpuGroup::new)?.with_wire(wire)?;
            let mut seconds = Vec::new();
            for step in 0..self.steps() {
                let (mut indices, mut offsets) = (Vec::new(), vec![0]);
                for bag in self.part(step, group.rank(), ranks) {
                    indices.extend_from_slice(bag);
                    offsets.push(indices.len() as u32);
                }
                let weights = weighted.then(|| vec![1.0; indices.len()]);
                group.comm().max(0)?; // all begin together
                let (done, own) = timed(|| {
                    let outputs =
                        group.forward(Bags::new(&indices, &offsets).with_weights(weights.as_deref()), Mode::Train)?;
                    group.backward(&vec![0.0; outputs.len()])
                });
                done?;
                // The bits of numbers that are not negative are in their order.
                seconds.push(f32::from_bits(group.comm().max((own as f32).to_bits())?).into());
            }
            Ok(Seen { traffic: group.traffic().clone(), seconds })
        })
    }
}

/// What a rank has sent, and the seconds that the slowest rank took for each step.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) traffic: dist::RankTraffic,
    pub(crate) seconds: Vec<f64>,
}

/// Compares the bytes of each phase of a step. `allowed` is the most that they may differ in percent; without it they are not judged.
pub(super) fn compare(planned: [f64; 5], counted: [f64; 5], allowed: Option<f64>) -> Vec<Object> {
    let line = |((&phase, planned), counted): ((&&'static str, f64), f64)| {
        let most = f64::max(planned, f64::MIN_POSITIVE);
        let deviation = if planned == counted { 0.0 } else { 100.0 * (counted - planned) / most };
        let within = allowed.map_or("not judged", |most| if deviation.abs() <= most { "yes" } else { "no" });
        Object::default()
            .with("phase", phase)
            .with("planned_bytes", planned)
            .with("counted_bytes", counted)
            .with("deviation_percent", deviation)
            .with("allowed_percent", allowed)
            .with("within", within)
    };
    PHASES.iter().zip(planned).zip(counted).map(line).collect()
}
