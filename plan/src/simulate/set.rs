//! One set of the cache: its ways and the order in which they are evicted.

use crate::simulate::rows::{Home, Row, Rows};
use hotrow::Policy;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

/// A filled way.
#[derive(Clone, Debug)]
struct Way {
    /// The resident row, by its number.
    row: u32,
    /// The step that last touched it.
    stamp: u64,
    /// Never evicted.
    pinned: bool,
    /// Changed since the row came.
    dirty: bool,
    /// A window way ([`Policy::Window`]).
    window: bool,
}

/// Marks an empty way between others: one that a pinned row has left under [`Policy::Static`], or any empty way under [`Policy::Window`].
const HOLE: u32 = u32::MAX;

/// What a set needs to know of the cache and of the moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub(crate) policy: Policy,
    pub(crate) ways: u32,
    /// Window ways of the set; 0 unless the policy is Window.
    pub(crate) window: u32,
    /// The running step, or the last one.
    pub(crate) step: u64,
    /// Halvings of the shard's counters so far.
    pub(crate) halvings: u64,
}

impl Way {
    /// The value by which the policy orders victims: stamp or frequency.
    fn value(&self, policy: Policy, rows: &Rows) -> u64 {
        match policy {
            Policy::Lru | Policy::Static => self.stamp,
            Policy::Lfu | Policy::Window => u64::from(rows[self.row].freq),
        }
    }

    /// The value by which Window orders victims among main ways, or among window ways; `None` if the way is empty.
    fn rank(&self, rule: &Rule, rows: &Rows) -> Option<(u32, u64, u32)> {
        let Row { id, .. } = *rows.get(self.row)?;
        let uses = if self.window { 0 } else { rows[self.row].uses(rule.halvings) };
        Some((uses, self.stamp, id))
    }
}

/// The ways of one set. Ways fill in ascending order and, while steps admit rows, are never emptied again. So those
/// beyond `ways.len()` are the empty ones, and take no memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Set {
    ways: Vec<Way>,
    /// Victims, the smallest (value, way) on top. An entry's value may be out of date, because touching a way does not
    /// update the heap. Values only grow, so an entry on top that is up to date is the minimum.
    order: BinaryHeap<Reverse<(u64, u32)>>,
    /// Ways given out in the running step. They cannot be victims until [`Set::settle`].
    seated: Vec<u32>,
}

/// A way to take, and the row that leaves it.
type Victim = (u32, Option<u32>);

impl Set {
    /// The number of the row in a way, if the way is filled.
    pub(crate) fn row(&self, way: u32) -> Option<u32> {
        self.ways.get(way as usize).map(|way| way.row).filter(|&row| row != HOLE)
    }

    /// Whether a way's row changed since it came.
    pub(crate) fn is_dirty(&self, way: u32) -> bool {
        self.ways[way as usize].dirty
    }

    /// Under Window, all ways are there from the start, the first ones as window ways.
    fn open(&mut self, rule: &Rule) {
        if self.ways.is_empty() {
            let empty = |way| Way { row: HOLE, stamp: 0, pinned: false, dirty: false, window: way < rule.window };
            self.ways.extend((0..rule.ways).map(empty));
        }
    }

    /// The next victim under Window for a row of counter `uses` (SPEC 3). It looks at all ways.
    fn take_by_window(&mut self, uses: u32, rule: &Rule, rows: &Rows) -> Option<Victim> {
        self.open(rule);
        let (mut main, mut recent) = (None, None);
        for (at, way) in self.ways.iter().enumerate().filter(|(_, way)| !way.pinned) {
            let rank = way.rank(rule, rows);
            let first = if way.window { &mut recent } else { &mut main };
            if (rank.is_none() || way.stamp < rule.step) && first.is_none_or(|(known, _)| rank < known) {
                *first = Some((rank, at));
            }
        }
        let least = main.map(|(rank, _)| rank.map_or(0, |(uses, ..)| uses));
        let taken = match (main, recent) {
            (Some((None, at)), _) => at,
            (Some((_, at)), _) if Some(uses) > least => at,
            (Some((_, at)), Some((Some(_), old))) if Some(rows[self.ways[old].row].uses(rule.halvings)) > least => {
                (self.ways[old].window, self.ways[at].window) = (false, true);
                at
            }
            (_, recent) => recent?.1,
        };
        Some((taken as u32, self.row(taken as u32)))
    }

    /// The rows in dirty ways, by their numbers.
    pub(crate) fn dirty_rows(&self) -> impl Iterator<Item = u32> + '_ {
        self.ways.iter().filter(|way| way.dirty).map(|way| way.row)
    }

    /// Records that a way's row has changed.
    pub(crate) fn set_dirty(&mut self, way: u32) {
        self.ways[way as usize].dirty = true;
    }

    /// Records that a way's row is in the batch of this step.
    #[inline]
    pub(crate) fn stamp(&mut self, way: u32, step: u64) {
        self.ways[way as usize].stamp = step;
    }

    /// The next victim for a row that was used so often: an empty way; else under LRU the one untouched for longest, but none touched in this step; under LFU
    /// the least used one, if it was used less.
    pub(crate) fn take(&mut self, uses: u32, rule: &Rule, rows: &Rows) -> Option<Victim> {
        if rule.policy == Policy::Window {
            return self.take_by_window(uses, rule, rows);
        }
        let filled = self.ways.len() as u32;
        if filled < rule.ways {
            return Some((filled, None));
        }
        let end = if rule.policy == Policy::Lfu { uses.into() } else { rule.step };
        while let Some(mut top) = self.order.peek_mut() {
            let Reverse((noted, way)) = *top;
            let now = self.ways[way as usize].value(rule.policy, rows);
            if now != noted {
                // The entry sinks to its place when `top` goes out of scope.
                *top = Reverse((now, way));
                continue;
            }
            if now >= end {
                return None;
            }
            PeekMut::pop(top);
            return Some((way, Some(self.ways[way as usize].row)));
        }
        None
    }

    /// Puts a row into a way that was just taken.
    pub(crate) fn seat(&mut self, way: u32, row: u32, stamp: u64) {
        self.place(way, Way { row, stamp, pinned: false, dirty: false, window: false });
        self.seated.push(way);
    }

    fn place(&mut self, way: u32, newcomer: Way) {
        match self.ways.get_mut(way as usize) {
            Some(old) => *old = Way { window: old.window && !newcomer.pinned, ..newcomer },
            None => self.ways.push(newcomer),
        }
    }

    /// Ends the set's admissions of this step: from now on the admitted rows can be victims too.
    pub(crate) fn settle(&mut self, policy: Policy, rows: &Rows) {
        if policy == Policy::Window {
            return self.seated.clear(); // has no order
        }
        for way in self.seated.drain(..) {
            let held = &self.ways[way as usize];
            self.order.push(Reverse((held.value(policy, rows), way)));
        }
    }

    /// Pins exactly `wanted`, hottest first, all clean. Returns how many rows were loaded and how many left for them.
    pub(crate) fn pin(&mut self, rule: &Rule, wanted: &[u32], rows: &mut Rows) -> (u64, u64) {
        let (Rule { policy, ways, step, .. }, mut left) = (*rule, 0);
        if policy == Policy::Window {
            self.open(rule);
        }
        let before: Vec<bool> = self.ways.iter_mut().map(|way| std::mem::take(&mut way.pinned)).collect();
        self.ways.iter_mut().for_each(|way| way.dirty = false);
        let mut missing = Vec::new();
        for &row in wanted {
            match rows[row].home {
                Home::Way(way) => {
                    let way = &mut self.ways[way as usize];
                    (way.pinned, way.window) = (true, false);
                }
                Home::Table => missing.push(row),
            }
        }
        if policy == Policy::Static {
            for (way, _) in self.ways.iter_mut().zip(before).filter(|(way, before)| *before && !way.pinned) {
                rows[way.row].home = Home::Table;
                way.row = HOLE;
                left += 1;
            }
        }
        // Main ways first; of these empty ones, then the least value, then the first way.
        let value = |way: u32| match self.ways.get(way as usize) {
            Some(held) if policy == Policy::Window => (held.window, held.rank(rule, rows)),
            Some(held) if held.row != HOLE => (false, Some((0, held.value(policy, rows), 0))),
            _ => (false, None),
        };
        let free = |way: &u32| self.ways.get(*way as usize).is_none_or(|held| !held.pinned);
        let mut victims: Vec<_> =
            (0..if missing.is_empty() { 0 } else { ways }).filter(free).map(|way| (value(way), way)).collect();
        victims.sort_unstable();
        for (&row, &(_, way)) in missing.iter().zip(&victims) {
            if let Some(gone) = self.row(way) {
                rows[gone].home = Home::Table;
                left += 1;
            }
            rows[row].home = Home::Way(way);
            self.place(way, Way { row, stamp: step, pinned: true, dirty: false, window: false });
        }
        if policy == Policy::Window {
            self.flag(rule, rows);
            return (missing.len() as u64, left);
        }
        let victims = (0..).zip(&self.ways).filter(|(_, way)| !way.pinned && way.row != HOLE);
        self.order = victims.map(|(at, way)| Reverse((way.value(policy, rows), at))).collect();
        (missing.len() as u64, left)
    }

    /// Makes ways that are not pinned window ways, until there are enough: empty ones first, then those of the oldest stamp and the lowest row.
    fn flag(&mut self, rule: &Rule, rows: &Rows) {
        let mut main: Vec<_> = (0..).zip(&self.ways).filter(|(_, way)| !way.pinned && !way.window).collect();
        main.sort_by_key(|(_, way)| way.rank(rule, rows).map(|(_, stamp, id)| (stamp, id)));
        let flags = self.ways.iter().filter(|way| way.window).count();
        let more: Vec<usize> =
            main.iter().map(|&(at, _)| at).take((rule.window as usize).saturating_sub(flags)).collect();
        more.into_iter().for_each(|at| self.ways[at].window = true);
    }
}
