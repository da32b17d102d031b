//! A set of many ways, up to all slots: rows are not looked for way by way.

use hotrow::internals::admission::{Rule, Set, Victims};
use hotrow::internals::layout::{NONE, PINNED};
use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, HashMap};

/// Where the rows of a set are, and in what order its ways are taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct Large {
    /// The way of each row.
    pub(crate) places: HashMap<u32, usize>,
    /// The ways with rows that may leave, behind one more than their values, the least on top. A value may be out of date: it only grows, so an entry on
    /// top that is up to date is the least.
    order: BinaryHeap<Reverse<(u32, usize)>>,
    /// The number of ways that were ever taken: those in front. Steps empty none.
    filled: usize,
}

impl Large {
    /// Adds ways whose rows may leave from now on.
    pub(crate) fn add(&mut self, rule: &Rule, set: &Set<'_>, ways: impl IntoIterator<Item = usize>) {
        self.order.extend(ways.into_iter().map(|way| Reverse((rule.value(set, way) + 1, way))));
    }

    /// Looks at all ways again, after a change of pins.
    pub(crate) fn renew(&mut self, rule: &Rule, set: &Set<'_>) {
        let held = || (0..set.tags.len()).filter(|&way| set.tags[way] != NONE);
        *self = Self {
            places: held().map(|way| (set.tags[way], way)).collect(),
            filled: held().count(),
            ..Self::default()
        };
        self.add(rule, set, held().filter(|&way| set.flags[way] & PINNED == 0));
    }
}

impl Victims for &mut Large {
    fn first(&mut self, rule: &Rule, set: &Set<'_>) -> Option<(u32, usize)> {
        if self.filled < set.tags.len() {
            return Some((0, self.filled));
        }
        loop {
            let mut top = self.order.peek_mut()?;
            let Reverse((noted, way)) = *top;
            let now = rule.value(set, way) + 1;
            if now == noted {
                return Some((now, way));
            }
            // The entry sinks to its place when `top` goes out of scope.
            *top = Reverse((now, way));
        }
    }

    fn take(&mut self, way: usize) {
        if way == self.filled {
            self.filled += 1;
        } else if let Some(top) = self.order.peek_mut() {
            PeekMut::pop(top);
        }
    }
}
