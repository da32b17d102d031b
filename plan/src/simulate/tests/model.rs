//! SPEC 3, steps 1 to 5, written as it reads, without regard to speed. Shares only the hash with the simulator; the
//! hash has its own known answers.

use hotrow::{Counters, Policy, internals::hash::Spread};
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
    /// All sets are one virtual shard's.
    ShardsIgnored,
    /// A row that comes into a dirty slot is dirty.
    DirtyInherited,
    /// Sets are those of the largest table, whatever the rows.
    RowsIgnored,
    /// Window never halves its counters.
    NeverHalved,
    /// A batch counts as accesses since the last halving before it is decided.
    CountedBefore,
    /// No row leaves the window for a main way.
    NeverPromoted,
    /// Window's main ways of equal counts and stamps leave by way.
    TiesByWay,
    /// Window's main ways of equal counts leave by row.
    StampIgnored,
    /// A cache that covers its rows has window ways.
    WindowsCover,
    /// The backward makes bypassed rows' sets dirty: every row of the batch counts as dirty, resident or not.
    BypassedDirty,
}

pub(crate) struct Model {
    rows: u32,
    sets: u32,
    ways: u32,
    shards: u32,
    policy: Policy,
    fault: Fault,
    t: u64,
    /// (set, way) to (row, stamp).
    slots: HashMap<(u32, u32), (u32, u64)>,
    freq: HashMap<u32, u64>,
    /// Window ways.
    flags: BTreeSet<(u32, u32)>,
    /// Of each shard: accesses since the last halving.
    since: Vec<u64>,
    dirty: BTreeSet<u32>,
    batch: BTreeSet<u32>,
    pub(crate) counters: Counters,
}

impl Model {
    pub(crate) fn new([rows, sets, ways, shards, window]: [u32; 5], policy: Policy, fault: Fault) -> Self {
        let (slots, freq, dirty, batch, flags) = Default::default();
        let (counters, since) = (Counters::default(), vec![0; shards as usize]);
        let mut model =
            Self { rows, sets, ways, shards, policy, fault, t: 0, slots, freq, flags, since, dirty, batch, counters };
        let with_flags = |set: &u32| fault == Fault::WindowsCover || !model.covers(set / (sets / shards));
        model.flags = (0..sets).filter(with_flags).flat_map(|set| (0..window).map(move |way| (set, way))).collect();
        model
    }

    fn rows_of(&self, shard: u32) -> u32 {
        (self.rows - shard).div_ceil(self.shards)
    }

    fn covers(&self, shard: u32) -> bool {
        self.sets / self.shards * self.ways >= self.rows_of(shard)
    }

    /// Halves the counters of shards before a batch, and counts its accesses behind it; or before it, which is a fault.
    fn age(&mut self, count: &BTreeMap<u32, u64>, behind: bool) {
        for shard in 0..self.shards {
            if !behind && self.policy == Policy::Window && self.fault != Fault::NeverHalved && !self.covers(shard) {
                let period = 32 * u64::from(self.sets / self.shards * self.ways);
                for (_, c) in self.freq.iter_mut().filter(|(row, _)| *row % self.shards == shard) {
                    *c >>= (self.since[shard as usize] / period).min(4);
                }
                self.since[shard as usize] %= period;
            }
            if behind {
                self.since[shard as usize] +=
                    count.iter().filter(|(row, _)| *row % self.shards == shard).map(|(_, n)| n).sum::<u64>();
            }
        }
    }

    /// SPEC 11.
    fn set(&self, row: u32) -> u32 {
        let (of_shard, shard) = (self.sets / self.shards, row % self.shards);
        let within = |rows| Spread::new(rows, of_shard, self.ways).set_of(row / self.shards);
        match self.fault {
            Fault::ShardsIgnored => Spread::new(self.rows, self.sets, self.ways).set_of(row),
            Fault::RowsIgnored => of_shard * shard + within(u32::MAX - 1),
            _ => of_shard * shard + within(self.rows_of(shard)),
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
        self.age(&count, self.fault == Fault::CountedBefore);
        if self.fault == Fault::CountedBefore {
            self.age(&count, false);
        }
        let most = if self.policy == Policy::Window { 15 } else { 1 << 31 };
        for (&row, &n) in &count {
            let freq = self.freq.entry(row).or_default();
            *freq = (*freq + n).min(most);
        }
        self.counters.accesses += batch.len() as u64;
        self.counters.unique += count.len() as u64;
        self.counters.unique_misses += missing.len() as u64;
        // 4 and 5.
        for set in 0..self.sets {
            match self.policy {
                Policy::Window => self.admit_by_window(set, &missing, &count),
                _ => self.admit(set, &missing, &count),
            }
        }
        if self.fault != Fault::CountedBefore {
            self.age(&count, true);
        }
        self.counters.hits += match self.fault {
            Fault::ProbeAfterAdmission => batch.iter().filter(|&&row| self.is_resident(row)).count() as u64,
            _ => hits,
        };
    }

    fn admit(&mut self, set: u32, missing: &[u32], count: &BTreeMap<u32, u64>) {
        let key = |row: u32| match self.policy {
            Policy::Lru | Policy::Static => count[&row],
            Policy::Lfu | Policy::Window => self.freq[&row],
        };
        let mut candidates: Vec<(u64, u32)> =
            missing.iter().filter(|&&row| self.set(row) == set).map(|&row| (key(row), row)).collect();
        candidates.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));

        // None (empty) sorts before Some (filled).
        let mut victims: Vec<(Option<u64>, u32)> = (0..self.ways)
            .map(|way| {
                let value = self.slots.get(&(set, way)).map(|&(row, stamp)| match self.policy {
                    Policy::Lru | Policy::Static => stamp,
                    Policy::Lfu | Policy::Window => self.freq.get(&row).copied().unwrap_or(0),
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
                    (Policy::Lfu | Policy::Window, _) => value >= key,
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

    /// The ways of a set that a row may take: empty, or without stamp t.
    fn victims(&self, set: u32, window: bool) -> Vec<(u32, Option<(u32, u64)>)> {
        let ways = (0..self.ways).filter(|&way| self.flags.contains(&(set, way)) == window);
        let all = ways.map(|way| (way, self.slots.get(&(set, way)).copied()));
        all.filter(|(_, held)| self.fault == Fault::Unprotected || held.is_none_or(|(_, stamp)| stamp < self.t))
            .collect()
    }

    /// Rule 3 of Window: of a set's missing rows, one after another.
    fn admit_by_window(&mut self, set: u32, missing: &[u32], count: &BTreeMap<u32, u64>) {
        let c = |model: &Self, row: u32| model.freq.get(&row).copied().unwrap_or(0);
        let mut rows: Vec<u32> = missing.iter().copied().filter(|&row| self.set(row) == set).collect();
        rows.sort_by_key(|&row| (15 - c(self, row), u64::MAX - count[&row], row));
        for (nth, row) in rows.into_iter().enumerate() {
            let (main, recent) = (self.victims(set, false), self.victims(set, true));
            let empty = main.iter().find(|(_, held)| held.is_none()).map(|&(way, _)| way);
            let v =
                main.iter().filter_map(|&(way, held)| Some((way, held?))).min_by_key(|&(way, (row, stamp))| match self
                    .fault
                {
                    Fault::TiesByWay => (c(self, row), stamp, way),
                    Fault::StampIgnored => (c(self, row), 0, row),
                    _ => (c(self, row), stamp, row),
                });
            let q = recent
                .iter()
                .find(|(_, held)| held.is_none())
                .or_else(|| recent.iter().min_by_key(|(_, held)| held.map(|(row, stamp)| (stamp, row))));
            let above_v = |row| {
                v.is_some_and(|(_, (other, _))| match self.fault {
                    Fault::TiesReplaced => c(self, row) >= c(self, other),
                    _ => c(self, row) > c(self, other),
                })
            };
            let way = if nth >= self.ways as usize {
                None
            } else if empty.is_some() {
                empty
            } else if above_v(row) {
                v.map(|(way, _)| way)
            } else if let (Some(&(old, Some((o, _)))), Some((way, _)), true) =
                (q, v, self.fault != Fault::NeverPromoted)
                && above_v(o)
            {
                self.flags.remove(&(set, old));
                self.flags.insert((set, way));
                Some(way)
            } else {
                q.map(|&(way, _)| way)
            };
            let Some(way) = way else {
                self.counters.conflicts += 1;
                continue;
            };
            self.counters.admitted += 1;
            if let Some((gone, _)) = self.slots.insert((set, way), (row, self.t)) {
                self.counters.evictions += 1;
                self.dirty.remove(&gone);
                if self.fault == Fault::FreqForgotten {
                    self.freq.remove(&gone);
                }
            }
        }
    }
}
