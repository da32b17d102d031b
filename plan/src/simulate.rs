//! Simulates the cache without its rows: counts which accesses of a trace hit, for any shape of cache (SPEC 3, steps 1
//! to 5).
//!
//! [`Simulator`] keeps the metadata that a group keeps, and admits by the library's own rule, so a trace of millions of accesses takes about a
//! second. It takes any number of ways, from 1 (direct-mapped) to all slots in one set (fully associative). For what no policy can exceed see [`Best`].

mod best;
mod geometry;
mod large;
mod uses;

pub use best::Best;
pub use geometry::{Geometry, GeometryError};
pub use hotrow::internals::layout::WINDOW_WAYS;

use hotrow::internals::admission::{Move, Room, Rule, Set, find};
use hotrow::internals::hash::Spread;
use hotrow::internals::layout::{DIRTY, MOST_WAYS, NONE};
use hotrow::internals::{Layout, seats};
use hotrow::{Counters, Error, GroupConfig};
use large::Large;
use uses::Uses;

/// The most ways of a set in which rows are looked for one by one.
const FEW_WAYS: u32 = 128;

/// The cache of a group that has no rows.
///
/// ```
/// use hotrow::GroupConfig;
/// use hotrow_plan::simulate::Simulator;
///
/// let config = GroupConfig::new(&[1000], 1).with_cache_rows(128); // a thousand rows; four sets of 32 ways
/// let mut cache = Simulator::new(&config)?;
/// cache.step(&[1, 2, 2]);
/// cache.step(&[2, 3]);
/// assert_eq!((cache.counters().accesses, cache.counters().hits), (5, 1));
/// # Ok::<(), hotrow::Error>(())
/// ```
#[derive(Debug)]
pub struct Simulator {
    layout: Layout,
    /// Whether tables have shares of the cache; else the sets of all rows are these.
    shared: bool,
    spread: Spread,
    rule: Rule,
    /// The most that the counter of a row reaches.
    most: u32,
    /// The metadata of each set, empty until a row comes.
    sets: Vec<Vec<u32>>,
    /// For sets of more ways than are looked at one by one, as many as sets; else none.
    large: Vec<Large>,
    uses: Uses,
    /// Of each share of the cache, or of all: the accesses since the counters were halved.
    since: Vec<u64>,
    counters: Counters,
    /// The last batch, sorted.
    batch: Vec<u32>,
    /// Its missing rows: the set, and the order in which they come.
    missing: Vec<(u32, u64)>,
    room: Room,
}

impl Simulator {
    /// Makes the empty cache of a group: its tables, cache rows, ways, shares, policy and counters count. Sets of more ways than the 1,024 of a group are
    /// simulated too; with as many as cache rows there is one, which is fully associative.
    ///
    /// # Errors
    /// As [`GroupConfig::check`]; [`Error::OutOfMemory`].
    pub fn new(config: &GroupConfig) -> Result<Self, Error> {
        let layout = layout_of(config)?;
        let sets = empty_sets(&layout)?;
        let n = sets.len();
        Ok(Self {
            rule: Rule { facts: config.policy.facts(), t: 0 },
            most: config.most_uses(),
            sets,
            large: vec![Large::default(); if config.ways > FEW_WAYS { n } else { 0 }],
            uses: Uses::default(),
            since: vec![0; layout.counts_since()],
            shared: !config.cache_shares.is_empty(),
            spread: layout.spread(),
            layout,
            counters: Counters::default(),
            batch: Vec::new(),
            missing: Vec::new(),
            room: Room::default(),
        })
    }

    /// The counters so far: those from accesses to evictions. The others are 0.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// The number of sets.
    #[must_use]
    pub const fn sets(&self) -> u32 {
        self.layout.sets
    }

    /// The number of sets of a table's rows.
    #[must_use]
    pub fn sets_of(&self, table: usize) -> u32 {
        self.layout.sets_of_table(table)
    }

    /// The set of a row; none of the sets for a row of a table without a share of the cache.
    #[inline]
    fn set_of(&self, row: u32) -> u32 {
        if self.shared { self.layout.sets_of_rows().set_of(row) } else { self.spread.set_of(row) }
    }

    /// The row in a way of a set; `None` if the way is empty or does not exist.
    #[must_use]
    pub fn resident(&self, set: u32, way: u32) -> Option<u32> {
        let tags = self.sets.get(set as usize)?.get(..self.layout.ways as usize)?;
        tags.get(way as usize).copied().filter(|&row| row != NONE)
    }

    /// Whether the row is in a slot, so that an access in the next step is a hit.
    #[must_use]
    pub fn holds(&self, row: u32) -> bool {
        self.place(self.set_of(row), row).is_some()
    }

    /// Whether the row is in a slot that a [`backward`](Self::backward) has changed since the row came. Such a row is read in FP32, any
    /// other one as its record.
    #[must_use]
    pub fn is_dirty(&self, row: u32) -> bool {
        self.place(self.set_of(row), row)
            .is_some_and(|(set, way)| self.sets[set][3 * self.layout.ways as usize + way] & DIRTY != 0)
    }

    /// The set and the way of a resident row, whose set is known.
    #[inline]
    fn place(&self, set: u32, row: u32) -> Option<(usize, usize)> {
        if row == NONE {
            return None; // as an empty way is marked
        }
        let set = set as usize;
        let way = match self.large.get(set) {
            Some(large) => large.places.get(&row).copied(),
            None => find(self.sets.get(set)?.get(..self.layout.ways as usize)?, row),
        };
        way.map(|way| (set, way))
    }

    /// The words of a set, which are made where there are none.
    fn open<'s>(words: &'s mut Vec<u32>, layout: &Layout, set: u32) -> Set<'s> {
        if words.is_empty() {
            // Zeros take no memory until they are written, which most words of a large set never are.
            let ways = layout.ways as usize;
            *words = vec![0; 4 * ways];
            words[..ways].fill(NONE);
            (0..layout.recent_ways(set)).for_each(|way| words[3 * ways + way as usize] = layout.empty_flags(set, way));
        }
        Set::of(words)
    }

    /// Pins exactly `rows`, hottest first, at most `ways` (or all) of each set: they are loaded and are never victims. The cache is flushed
    /// first, so no slot stays dirty.
    /// Returns the rows that found no way, in the order given. Counts as [`Embedding::pin`](hotrow::Embedding::pin)
    /// does: a loaded row is unique, missed and admitted, a row that leaves for it is evicted.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn pin(&mut self, rows: &[u32], ways: u32) -> Vec<u32> {
        rows.iter().for_each(|&row| self.check(row));
        let of_row = self.layout.sets_of_rows();
        let (wanted, left_out) = seats(|row| of_row.set_of(row), rows, ways.min(self.layout.ways));
        self.batch.clear();
        let mut rest = wanted.as_slice();
        for (set, words) in (0..).zip(&mut self.sets) {
            let (here, others) = rest.split_at(rest.partition_point(|one| one.0 == set));
            rest = others;
            if here.is_empty() && words.is_empty() {
                continue;
            }
            let mut words = Self::open(words, &self.layout, set);
            words.flags.iter_mut().for_each(|flags| *flags &= !DIRTY);
            let (wanted, mut left): (Vec<u32>, _) = (here.iter().map(|one| one.2).collect(), Vec::new());
            let come = self.rule.pin(&mut words, &wanted, self.layout.recent_ways(set), &mut left);
            if self.rule.facts.counts {
                come.iter().for_each(|&(way, row)| words.freqs[way] = *self.uses.of(row));
            }
            if let Some(large) = self.large.get_mut(set as usize) {
                large.renew(&self.rule, &words);
            }
            let (come, Counters { unique, unique_misses, admitted, evictions, .. }) =
                (come.len() as u64, &mut self.counters);
            [unique, unique_misses, admitted].into_iter().for_each(|count| *count += come);
            *evictions += left.len() as u64;
        }
        left_out
    }

    /// Marks the slots of the last step's rows dirty, as the backward of a training step does (SPEC 3). Without it no slot is ever dirty.
    pub fn backward(&mut self) {
        for at in 0..self.batch.len() {
            let row = self.batch[at];
            if let Some((set, way)) = self.place(self.set_of(row), row) {
                self.sets[set][3 * self.layout.ways as usize + way] |= DIRTY;
            }
        }
    }

    fn check(&self, row: u32) {
        let rows = self.layout.total_rows;
        assert!(row < rows, "row {row}: wanted one below {rows}, the rows of the simulated tables");
    }

    /// Runs one batch: every index is probed against the state that the last step left, then the missing rows are
    /// admitted. An empty batch changes nothing.
    ///
    /// # Panics
    /// If there is no row of an index.
    pub fn step(&mut self, batch: &[u32]) {
        let Some(&last) = batch.iter().max() else { return self.batch.clear() };
        self.check(last);
        self.rule.t = self.rule.t.wrapping_add(1);
        if self.rule.facts.ages {
            self.halve();
        }
        self.counters.accesses += batch.len() as u64;
        self.missing.clear();
        let mut sorted = std::mem::take(&mut self.batch);
        sorted.clear();
        sorted.extend_from_slice(batch);
        if let &[row] = batch {
            self.touch(row, 1);
        } else {
            sorted.sort_unstable();
            sorted.chunk_by(|a, b| a == b).for_each(|of_row| self.touch(of_row[0], of_row.len() as u32));
        }
        self.batch = sorted;
        if self.rule.facts.admits && !self.missing.is_empty() {
            self.admit();
        }
    }

    /// Halves the counters as often as enough accesses have passed.
    fn halve(&mut self) {
        let ways = self.layout.ways as usize;
        for (share, rows, sets) in self.layout.ageing() {
            let (since, every) = (&mut self.since[share], 32 * sets.len() as u64 * ways as u64);
            let times = (*since / every).min(4) as u32;
            if times > 0 {
                *since %= every;
                self.uses.halve(&rows, times);
                let sets = self.sets[sets.start as usize..sets.end as usize].iter_mut().filter(|set| !set.is_empty());
                sets.for_each(|set| set[2 * ways..3 * ways].iter_mut().for_each(|uses| *uses >>= times));
            }
        }
    }

    /// Probes and touches a row of the batch: counts its hits and sets stamp and counter, or lists it as missing.
    #[inline]
    fn touch(&mut self, row: u32, count: u32) {
        let (rule, set) = (self.rule, self.set_of(row));
        self.counters.unique += 1;
        let mut used = 0;
        if rule.facts.counts {
            let uses = self.uses.of(row);
            *uses = uses.saturating_add(count).min(self.most);
            used = *uses;
        }
        if rule.facts.ages
            && let Some(share) = self.layout.ages_with(row)
        {
            self.since[share as usize] += u64::from(count);
        }
        if let Some((set, way)) = self.place(set, row) {
            self.counters.hits += u64::from(count);
            let ways = self.layout.ways as usize;
            let words = &mut self.sets[set];
            words[ways + way] = rule.t;
            if rule.facts.counts {
                words[2 * ways + way] = used;
            }
            return;
        }
        self.counters.unique_misses += 1;
        self.counters.conflicts += 1; // until it is admitted
        if (set as usize) < self.sets.len() {
            self.missing.push((set, Rule::order(rule.key(used, count), row)));
        }
    }

    /// Admits set by set.
    fn admit(&mut self) {
        let Self { layout, rule, sets, large, counters, missing, room, .. } = self;
        missing.sort_unstable();
        for of_set in missing.chunk_by(|a, b| a.0 == b.0) {
            let set = of_set[0].0;
            let mut words = Self::open(&mut sets[set as usize], layout, set);
            room.candidates.clear();
            room.candidates.extend(of_set.iter().zip(0..).map(|(&(_, order), k)| (order, k)));
            let mut moves = Vec::new();
            let mut count = |one: Move| {
                counters.admitted += 1;
                counters.conflicts -= 1;
                counters.evictions += u64::from(one.left.is_some());
            };
            let Some(large) = large.get_mut(set as usize) else {
                rule.admit(&mut words, room, count);
                continue;
            };
            let mut note = |one: Move| {
                count(one);
                moves.push(one);
            };
            if rule.facts.recent {
                rule.admit(&mut words, room, &mut note);
            } else {
                rule.admit_in_order(&mut words, &room.candidates, &mut *large, &mut note);
            }
            for &Move { row, way, left, .. } in &moves {
                left.map(|left| large.places.remove(&left.row));
                large.places.insert(row, way);
            }
            if !rule.facts.recent {
                // Only now may the rows leave again: the order of victims is that before the set's first admission.
                large.add(rule, &words, moves.iter().map(|one| one.way));
            }
        }
    }
}

/// As many empty sets as the cache has.
fn empty_sets<T: Clone + Default>(layout: &Layout) -> Result<Vec<T>, Error> {
    let (mut sets, n) = (Vec::new(), layout.sets as usize);
    let bytes = (n * size_of::<T>()) as u64;
    sets.try_reserve_exact(n).map_err(|_| Error::OutOfMemory { what: "sets", bytes })?;
    sets.resize(n, T::default());
    Ok(sets)
}

/// The layout of a group's cache, whose sets may have more ways than a group can have.
fn layout_of(config: &GroupConfig) -> Result<Layout, Error> {
    if config.ways > MOST_WAYS && config.window_ways < config.ways {
        config.clone().with_ways(MOST_WAYS).with_window_ways(0).check()?;
    } else {
        config.check()?;
    }
    Layout::unchecked(config, u64::MAX)
}

#[cfg(test)]
mod tests;
