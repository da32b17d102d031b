//! One set of the cache: its ways and the order in which they are given up.

use super::rows::Rows;
use crate::Policy;
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
}

/// The ways of one set. Ways fill in ascending order and are never emptied again, so those beyond `ways.len()` are
/// the empty ones and cost nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Set {
    ways: Vec<Way>,
    /// Victims, smallest (value, way) on top. An entry's value may lag behind, as touching a way does not reach into
    /// the heap; but values only ever grow, so an entry on top that proves up to date is the true minimum.
    order: BinaryHeap<Reverse<(u64, u32)>>,
    /// Ways given out in the running step. They are no victims until [`Set::settle`].
    seated: Vec<u32>,
}

/// A way to take, and the row that has to leave it.
type Victim = (u32, Option<u32>);

impl Set {
    /// The number of the row in a way, if it is filled.
    pub(super) fn row(&self, way: u32) -> Option<u32> {
        self.ways.get(way as usize).map(|way| way.row)
    }

    /// Notes that a way's row is in the batch of this step.
    #[inline]
    pub(super) fn stamp(&mut self, way: u32, step: u64) {
        self.ways[way as usize].stamp = step;
    }

    /// The next way LRU gives up: an empty one, else the one untouched for longest, but none of this step.
    pub(super) fn take_oldest(&mut self, ways: u32, step: u64) -> Option<Victim> {
        self.take(ways, |way| way.stamp, |stamp| stamp < step)
    }

    /// The next way LFU gives up to a row used `freq` times: an empty one, else the least used, if used less.
    pub(super) fn take_least_used(&mut self, ways: u32, freq: u32, rows: &Rows) -> Option<Victim> {
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
                // Sinks to its place when `top` goes out of scope.
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

    /// Puts a row into a way just taken.
    pub(super) fn seat(&mut self, way: u32, row: u32, stamp: u64) {
        let newcomer = Way { row, stamp };
        match self.ways.get_mut(way as usize) {
            Some(old) => *old = newcomer,
            None => self.ways.push(newcomer),
        }
        self.seated.push(way);
    }

    /// Ends the set's admissions of this step: from now on the rows just seated can be victims too.
    pub(super) fn settle(&mut self, policy: Policy, rows: &Rows) {
        for way in self.seated.drain(..) {
            let Way { row, stamp } = self.ways[way as usize];
            let value = match policy {
                Policy::Lru => stamp,
                Policy::Lfu => u64::from(rows[row].freq),
            };
            self.order.push(Reverse((value, way)));
        }
    }
}
