//! SPEC 3, steps 1 to 5, written as it reads, without regard to speed. Shares only the hash with the simulator; the
//! hash has its own known answers.

use crate::simulate::SimulatedCounters;
use hotrow::{Policy, hash::fmix32};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A wrong reading of the rules, which the comparison must notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// LFU replaces a row that was used as often.
    TiesReplaced,
    /// LRU evicts rows of the running batch.
    Unprotected,
    /// An evicted row's frequency restarts at 0.
    FreqForgotten,
    /// A batch hits rows that it admitted itself.
    ProbeAfterAdmission,
    /// Ties among victims go to the highest way.
    VictimsByHighestWay,
    /// All sets are one shard's.
    ShardsIgnored,
    /// A row that comes into a dirty slot is dirty.
    DirtyInherited,
    /// The backward makes bypassed rows' sets dirty: every row of the batch counts as dirty, resident or not.
    BypassedDirty,
}

pub(crate) struct Model {
    sets: u32,
    ways: u32,
    shards: u32,
    policy: Policy,
    fault: Fault,
    t: u64,
    /// (set, way) to (row, stamp).
    slots: HashMap<(u32, u32), (u32, u64)>,
    freq: HashMap<u32, u64>,
    dirty: BTreeSet<u32>,
    batch: BTreeSet<u32>,
    pub(crate) counters: SimulatedCounters,
}

impl Model {
    pub(crate) fn new(sets: u32, ways: u32, shards: u32, policy: Policy, fault: Fault) -> Self {
        let (slots, freq, dirty, batch) = Default::default();
        let counters = SimulatedCounters::default();
        Self { sets, ways, shards, policy, fault, t: 0, slots, freq, dirty, batch, counters }
    }

    /// SPEC 11.
    fn set(&self, row: u32) -> u32 {
        let of_shard = self.sets / self.shards;
        match self.fault {
            Fault::ShardsIgnored => fmix32(row) % self.sets,
            _ => of_shard * (row % self.shards) + fmix32(row) % of_shard,
        }
    }

    pub(crate) fn is_dirty(&self, row: u32) -> bool {
        self.dirty.contains(&row)
    }

    pub(crate) fn backward(&mut self) {
        let moved = self.batch.iter().copied();
        let moved: Vec<u32> =
            moved.filter(|&row| self.fault == Fault::BypassedDirty || self.is_resident(row)).collect();
        self.dirty.extend(moved);
    }

    pub(crate) fn resident(&self, set: u32, way: u32) -> Option<u32> {
        self.slots.get(&(set, way)).map(|&(row, _)| row)
    }

    fn is_resident(&self, row: u32) -> bool {
        self.slots.values().any(|&(other, _)| other == row)
    }

    pub(crate) fn step(&mut self, batch: &[u32]) {
        if batch.is_empty() {
            return;
        }
        self.batch = batch.iter().copied().collect();
        let mut count: BTreeMap<u32, u64> = BTreeMap::new();
        for &row in batch {
            *count.entry(row).or_default() += 1;
        }
        // 1.
        self.t += 1;
        // 2.
        let hits = batch.iter().filter(|&&row| self.is_resident(row)).count() as u64;
        let missing: Vec<u32> = count.keys().copied().filter(|&row| !self.is_resident(row)).collect();
        // 3.
        for (row, stamp) in self.slots.values_mut() {
            if count.contains_key(row) {
                *stamp = self.t;
            }
        }
        for (&row, &n) in &count {
            let freq = self.freq.entry(row).or_default();
            *freq = (*freq + n).min(1 << 31);
        }
        self.counters.accesses += batch.len() as u64;
        self.counters.unique += count.len() as u64;
        self.counters.unique_misses += missing.len() as u64;
        // 4 and 5.
        for set in 0..self.sets {
            self.admit(set, &missing, &count);
        }
        self.counters.hits += match self.fault {
            Fault::ProbeAfterAdmission => batch.iter().filter(|&&row| self.is_resident(row)).count() as u64,
            _ => hits,
        };
    }

    fn admit(&mut self, set: u32, missing: &[u32], count: &BTreeMap<u32, u64>) {
        let key = |row: u32| match self.policy {
            Policy::Lru | Policy::Static => count[&row],
            Policy::Lfu => self.freq[&row],
        };
        let mut candidates: Vec<(u64, u32)> =
            missing.iter().filter(|&&row| self.set(row) == set).map(|&row| (key(row), row)).collect();
        candidates.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));

        // None (empty) sorts before Some (filled).
        let mut victims: Vec<(Option<u64>, u32)> = (0..self.ways)
            .map(|way| {
                let value = self.slots.get(&(set, way)).map(|&(row, stamp)| match self.policy {
                    Policy::Lru | Policy::Static => stamp,
                    Policy::Lfu => self.freq.get(&row).copied().unwrap_or(0),
                });
                (value, way)
            })
            .collect();
        victims.sort_by(|a, b| match self.fault {
            Fault::VictimsByHighestWay => a.0.cmp(&b.0).then(b.1.cmp(&a.1)),
            _ => a.cmp(b),
        });

        if self.policy == Policy::Static {
            victims.clear(); // no step admits a row
        }
        let mut admitted = 0;
        for (&(key, row), &(value, way)) in candidates.iter().zip(&victims) {
            if let Some(value) = value {
                let stop = match (self.policy, self.fault) {
                    (Policy::Lru, Fault::Unprotected) => false,
                    (Policy::Lru | Policy::Static, _) => value == self.t,
                    (Policy::Lfu, Fault::TiesReplaced) => value > key,
                    (Policy::Lfu, _) => value >= key,
                };
                if stop {
                    break;
                }
            }
            if let Some((gone, _)) = self.slots.insert((set, way), (row, self.t)) {
                self.counters.evictions += 1;
                if self.dirty.remove(&gone) && self.fault == Fault::DirtyInherited {
                    self.dirty.insert(row);
                }
                if self.fault == Fault::FreqForgotten {
                    self.freq.remove(&gone);
                }
            }
            admitted += 1;
        }
        self.counters.admitted += admitted;
        self.counters.conflicts += candidates.len() as u64 - admitted;
    }
}
