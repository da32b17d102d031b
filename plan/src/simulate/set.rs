//! One set of the cache: its ways and the order in which they are evicted.

use crate::simulate::rows::{Home, Rows};
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
}

/// Marks a way that a pinned row has left; occurs under [`Policy::Static`] only.
const HOLE: u32 = u32::MAX;

impl Way {
    /// The value by which the policy orders victims: stamp or frequency.
    fn value(&self, policy: Policy, rows: &Rows) -> u64 {
        match policy {
            Policy::Lru | Policy::Static | Policy::Window => self.stamp,
            Policy::Lfu => u64::from(rows[self.row].freq),
        }
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

    /// The next victim under LRU: an empty way, else the one untouched for longest, but none touched in this step.
    pub(crate) fn take_oldest(&mut self, ways: u32, step: u64) -> Option<Victim> {
        self.take(ways, |way| way.stamp, |stamp| stamp < step)
    }

    /// The next victim under LFU for a row used `freq` times: an empty way, else the least used one, if it was used
    /// less.
    pub(crate) fn take_least_used(&mut self, ways: u32, freq: u32, rows: &Rows) -> Option<Victim> {
        self.take(ways, |way| u64::from(rows[way.row].freq), |used| used < u64::from(freq))
    }

    fn take(&mut self, ways: u32, value: impl Fn(&Way) -> u64, gives_way: impl Fn(u64) -> bool) -> Option<Victim> {
        let filled = self.ways.len() as u32;
        if filled < ways {
            return Some((filled, None));
        }
        while let Some(mut top) = self.order.peek_mut() {
            let Reverse((noted, way)) = *top;
            let now = value(&self.ways[way as usize]);
            if now != noted {
                // The entry sinks to its place when `top` goes out of scope.
                *top = Reverse((now, way));
                continue;
            }
            if !gives_way(now) {
                return None;
            }
            PeekMut::pop(top);
            return Some((way, Some(self.ways[way as usize].row)));
        }
        None
    }

    /// Puts a row into a way that was just taken.
    pub(crate) fn seat(&mut self, way: u32, row: u32, stamp: u64) {
        let newcomer = Way { row, stamp, pinned: false, dirty: false };
        match self.ways.get_mut(way as usize) {
            Some(old) => *old = newcomer,
            None => self.ways.push(newcomer),
        }
        self.seated.push(way);
    }

    /// Ends the set's admissions of this step: from now on the admitted rows can be victims too.
    pub(crate) fn settle(&mut self, policy: Policy, rows: &Rows) {
        for way in self.seated.drain(..) {
            let held = &self.ways[way as usize];
            self.order.push(Reverse((held.value(policy, rows), way)));
        }
    }

    /// Pins exactly `wanted`, hottest first, in a set of `ways` ways at `step`, all clean. Returns how many rows were loaded and
    /// how many left for them.
    pub(crate) fn pin(&mut self, ways: u32, policy: Policy, wanted: &[u32], step: u64, rows: &mut Rows) -> (u64, u64) {
        let mut left = 0;
        let before: Vec<bool> = self.ways.iter_mut().map(|way| std::mem::take(&mut way.pinned)).collect();
        self.ways.iter_mut().for_each(|way| way.dirty = false);
        let mut missing = Vec::new();
        for &row in wanted {
            match rows[row].home {
                Home::Way(way) => self.ways[way as usize].pinned = true,
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
        // Empty ways first, then the least value, then the first way.
        let value = |way: u32| match self.ways.get(way as usize) {
            Some(held) if held.row != HOLE => Some(held.value(policy, rows)),
            _ => None,
        };
        let free = |way: &u32| self.ways.get(*way as usize).is_none_or(|held| !held.pinned);
        let mut victims: Vec<(Option<u64>, u32)> =
            (0..if missing.is_empty() { 0 } else { ways }).filter(free).map(|way| (value(way), way)).collect();
        victims.sort_unstable();
        for (&row, &(_, way)) in missing.iter().zip(&victims) {
            if let Some(gone) = self.row(way) {
                rows[gone].home = Home::Table;
                left += 1;
            }
            rows[row].home = Home::Way(way);
            let newcomer = Way { row, stamp: step, pinned: true, dirty: false };
            match self.ways.get_mut(way as usize) {
                Some(old) => *old = newcomer,
                None => self.ways.push(newcomer),
            }
        }
        let victims = (0..).zip(&self.ways).filter(|(_, way)| !way.pinned && way.row != HOLE);
        self.order = victims.map(|(at, way)| Reverse((way.value(policy, rows), at))).collect();
        (missing.len() as u64, left)
    }
}
