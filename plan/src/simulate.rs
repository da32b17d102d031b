//! Simulates the cache without its rows: counts which accesses of a trace hit, for any shape of cache (SPEC 3, steps 1
//! to 5).
//!
//! [`Simulator`] keeps tags, stamps and frequencies only, so a trace of millions of accesses takes about a second. With
//! 32 ways it decides as the cache on a device does. It takes any number of ways, from 1 (direct-mapped) to all slots
//! in one set (fully associative). For what no policy can exceed see [`Best`].

mod best;
mod geometry;
mod places;
mod rows;
mod set;

pub use best::Best;
pub use geometry::{Geometry, GeometryError};

use hotrow::{CounterBits, Counters, Policy};
use places::Places;
use rows::{Home, Row, Rows};
use set::{Rule, Set};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

/// A row's frequency is capped here (SPEC 3, step 3), unless [`Simulator::with_counter_bits`] chose narrower counters.
pub const FREQ_CAP: u32 = CounterBits::ThirtyTwo.most();

/// The most that a counter of [`Policy::Window`] holds.
const MOST_USES: u32 = 15;

/// Window ways of a set under [`Policy::Window`], unless [`Simulator::with_window_ways`] chose otherwise.
pub const WINDOW_WAYS: u32 = 4;

/// A set-associative cache that holds row numbers only.
///
/// ```
/// use hotrow::Policy;
/// use hotrow_plan::simulate::Simulator;
///
/// let mut cache = Simulator::new(1000, 4, 32, Policy::Lru)?; // a thousand rows; four sets of 32 ways
/// cache.step(&[1, 2, 2]);
/// cache.step(&[2, 3]);
/// assert_eq!((cache.counters().accesses, cache.counters().hits), (5, 1));
/// # Ok::<(), hotrow_plan::simulate::GeometryError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Simulator {
    policy: Policy,
    counter_bits: CounterBits,
    ways: u32,
    window_ways: u32,
    places: Places,
    /// Of each virtual shard under Window: its accesses since its last halving, and its halvings.
    ages: Vec<[u64; 2]>,
    /// Number of the running step. The first is 1, so that an empty way can rank as 0.
    step: u64,
    sets: Vec<Set>,
    rows: Rows,
    counters: Counters,
    /// The distinct rows of the running batch, by their number in `rows`. Kept to reuse the allocation.
    touched: Vec<u32>,
    /// The missed rows of the running batch, likewise.
    missing: Vec<u32>,
}

impl Simulator {
    /// Makes an empty cache of `sets` x `ways` slots for tables of `rows` rows together. One set makes it fully associative; as many slots as rows make
    /// it cover them.
    ///
    /// # Errors
    /// [`GeometryError`] without rows, sets or ways, for more than 2^32 - 2 rows, and if the sets do not fit in memory.
    pub fn new(rows: u32, sets: u32, ways: u32, policy: Policy) -> Result<Self, GeometryError> {
        Ok(Self {
            policy,
            counter_bits: CounterBits::ThirtyTwo,
            ways,
            window_ways: WINDOW_WAYS.min(ways.saturating_sub(1)),
            places: Places::new(rows, sets, ways, 1)?,
            ages: vec![[0; 2]],
            step: 0,
            sets: geometry::empty_sets(sets, ways)?,
            rows: Rows::new(),
            counters: Counters::default(),
            touched: Vec::new(),
            missing: Vec::new(),
        })
    }

    /// Chooses the width of LFU's counters, 32 bits if nobody does. Call it before the first step.
    #[must_use]
    pub fn with_counter_bits(mut self, counter_bits: CounterBits) -> Self {
        self.counter_bits = counter_bits;
        self
    }

    /// Chooses the window ways of a set under [`Policy::Window`], else 4, or all ways but one. 0 makes it LFU that ages. Call it before the first step.
    ///
    /// # Errors
    /// [`GeometryError::WindowWays`] unless there are fewer than ways.
    pub fn with_window_ways(mut self, window_ways: u32) -> Result<Self, GeometryError> {
        if window_ways >= self.ways {
            return Err(GeometryError::WindowWays { ways: self.ways, found: window_ways });
        }
        self.window_ways = window_ways;
        Ok(self)
    }

    /// Divides rows and sets among virtual shards (SPEC 11), 1 if nobody does: each shard has an equal part of the sets, and row g is row
    /// `floor(g / shards)` of shard `g mod shards`. Call it before the first step.
    ///
    /// # Errors
    /// [`GeometryError::Shards`] unless the number of shards is above 0 and divides that of the sets.
    pub fn with_shards(mut self, shards: u32) -> Result<Self, GeometryError> {
        self.places = Places::new(self.places.rows, self.sets.len() as u32, self.ways, shards)?;
        self.ages = vec![[0; 2]; shards as usize];
        Ok(self)
    }

    /// The counters so far: those from accesses to evictions. The others are 0.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// The row in a way of a set; `None` if the way is empty or does not exist.
    #[must_use]
    pub fn resident(&self, set: u32, way: u32) -> Option<u32> {
        self.sets.get(set as usize)?.row(way).map(|number| self.rows[number].id)
    }

    /// Whether the row is in a slot, so that an access in the next step is a hit.
    #[must_use]
    pub fn holds(&self, row: u32) -> bool {
        self.rows.find(row).is_some_and(|number| matches!(self.rows[number].home, Home::Way(_)))
    }

    /// Whether the row is in a slot that a [`backward`](Self::backward) has changed since the row came. Such a row is read in FP32, any
    /// other one as its record.
    #[must_use]
    pub fn is_dirty(&self, row: u32) -> bool {
        let Some(number) = self.rows.find(row) else { return false };
        let Row { home, set, .. } = self.rows[number];
        matches!(home, Home::Way(way) if self.sets[set as usize].is_dirty(way))
    }

    /// The rows in dirty slots, in order of the slots.
    pub fn dirty_rows(&self) -> impl Iterator<Item = u32> + '_ {
        self.sets.iter().flat_map(Set::dirty_rows).map(|number| self.rows[number].id)
    }

    /// Pins exactly `rows`, hottest first, at most `ways` (or all) of each set: they are loaded and are never victims. The cache is flushed
    /// first, so no slot stays dirty.
    /// Returns the rows that found no way, in the order given. Counts as [`Embedding::pin`](hotrow::Embedding::pin)
    /// does: a loaded row is unique, missed and admitted, a row that leaves for it is evicted.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn pin(&mut self, rows: &[u32], ways: u32) -> Vec<u32> {
        let ways = ways.min(self.ways);
        let (mut known, mut seats, mut left_out) = (HashSet::new(), HashMap::<u32, Vec<u32>>::new(), Vec::new());
        for &row in rows.iter().filter(|&&row| known.insert(row)) {
            let seats = seats.entry(self.places.set_of(row)).or_default();
            if seats.len() < ways as usize { &mut *seats } else { &mut left_out }.push(row);
        }
        self.touched.clear();
        for home in 0..self.sets.len() as u32 {
            let (rule, here) = (self.rule(home), seats.remove(&home).unwrap_or_default());
            let Self { sets, rows: known, counters, .. } = self;
            let wanted: Vec<u32> = here.into_iter().map(|id| known.number(id, |_| home)).collect();
            let (came, left) = sets[home as usize].pin(&rule, &wanted, known);
            counters.unique += came;
            counters.unique_misses += came;
            counters.admitted += came;
            counters.evictions += left;
        }
        left_out
    }

    /// What a set goes by.
    fn rule(&self, set: u32) -> Rule {
        let Self { policy, ways, step, places, .. } = *self;
        let shard = places.shard_of(set);
        let window = if policy == Policy::Window && !places.covers(shard) { self.window_ways } else { 0 };
        Rule { policy, ways, window, step, halvings: self.ages[shard as usize][1] }
    }

    /// Marks the slots of the last step's rows dirty, as the backward of a training step does (SPEC 3). Without it no slot is ever dirty.
    pub fn backward(&mut self) {
        for &number in &self.touched {
            let Row { home, set, .. } = self.rows[number];
            if let Home::Way(way) = home {
                self.sets[set as usize].set_dirty(way);
            }
        }
    }

    /// Runs one batch: every index is probed against the state that the last step left, then the missing rows are
    /// admitted. An empty batch changes nothing.
    ///
    /// # Panics
    /// If there is no row of an index.
    pub fn step(&mut self, batch: &[u32]) {
        if batch.is_empty() {
            return;
        }
        self.step += 1;
        self.count(batch);
        if self.policy == Policy::Window {
            self.halve();
        }
        self.touch();
        self.admit();
        for &number in &self.touched {
            let row = &mut self.rows[number];
            self.ages[self.places.shard_of(row.set) as usize][0] += u64::from(row.count);
            row.count = 0;
        }
    }

    /// Before a batch: halves the counters of its shards as often as accesses have passed. Each row is told when it is used next.
    fn halve(&mut self) {
        let period = 32 * self.places.slots();
        for &number in &self.touched {
            let shard = self.places.shard_of(self.rows[number].set);
            let [since, halvings] = &mut self.ages[shard as usize];
            if *since >= period && !self.places.covers(shard) {
                *halvings += *since / period;
                *since %= period;
            }
        }
    }

    /// Counts how often each row occurs in the batch, and lists its distinct rows.
    fn count(&mut self, batch: &[u32]) {
        self.touched.clear();
        for &id in batch {
            let number = self.rows.number(id, |id| self.places.set_of(id));
            let row = &mut self.rows[number];
            if row.count == 0 {
                self.touched.push(number);
            }
            row.count = row.count.saturating_add(1);
        }
        self.counters.accesses += batch.len() as u64;
        self.counters.unique += self.touched.len() as u64;
    }

    /// Probe and touch: counts hits, sets stamps and frequencies, lists the missing rows.
    fn touch(&mut self) {
        self.missing.clear();
        for &number in &self.touched {
            let row = &mut self.rows[number];
            match self.policy {
                Policy::Lfu => row.freq = row.freq.saturating_add(row.count).min(self.counter_bits.most()),
                Policy::Window => {
                    let halvings = self.ages[self.places.shard_of(row.set) as usize][1];
                    (row.freq, row.halvings) = (row.uses(halvings).saturating_add(row.count).min(MOST_USES), halvings);
                }
                Policy::Lru | Policy::Static => {}
            }
            match row.home {
                Home::Way(way) => {
                    self.counters.hits += u64::from(row.count);
                    self.sets[row.set as usize].stamp(way, self.step);
                }
                Home::Table => self.missing.push(number),
            }
        }
        self.counters.unique_misses += self.missing.len() as u64;
    }

    /// Admits set by set: the l-th candidate takes the l-th victim until the policy stops.
    fn admit(&mut self) {
        if self.policy == Policy::Static {
            self.counters.conflicts += self.missing.len() as u64;
            return;
        }
        let mut missing = std::mem::take(&mut self.missing);
        missing.sort_unstable_by_key(|&number| {
            let row = &self.rows[number];
            let key = match self.policy {
                Policy::Lru | Policy::Static => (row.count, 0),
                Policy::Lfu => (row.freq, 0),
                Policy::Window => (row.freq, row.count),
            };
            (row.set, Reverse(key), row.id)
        });
        let mut rest = missing.as_slice();
        while let Some(&first) = rest.first() {
            let home = self.rows[first].set;
            let rule = self.rule(home);
            let Self { sets, rows, counters, .. } = self;
            let (candidates, others) = rest.split_at(rest.partition_point(|&number| rows[number].set == home));
            rest = others;
            let set = &mut sets[home as usize];
            let mut seated = 0;
            for &number in candidates {
                let Some((way, evicted)) = set.take(rows[number].freq, &rule, rows) else { break };
                if let Some(evicted) = evicted {
                    rows[evicted].home = Home::Table;
                    counters.evictions += 1;
                }
                rows[number].home = Home::Way(way);
                set.seat(way, number, rule.step);
                seated += 1;
            }
            // Only now can the admitted rows be victims: the order of victims is that before the set's first admission.
            set.settle(rule.policy, rows);
            counters.admitted += seated as u64;
            counters.conflicts += (candidates.len() - seated) as u64;
        }
        self.missing = missing;
    }
}

#[cfg(test)]
mod tests;
