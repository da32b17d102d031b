//! The cache that knows the future, an upper bound for every policy.

use crate::simulate::{empty_sets, layout_of};
use hotrow::internals::Layout;
use hotrow::{Counters, Error, GroupConfig};
use std::collections::BTreeSet;

/// Stands for no later use.
const NEVER: u64 = u64::MAX;

/// Plays a known trace through a cache of sets that always gives way to what is used first: of a set's rows and those that come, the ones whose next use
/// is nearest have its ways, and the others leave or are bypassed (Belady's rule, with bypass). In batches of one access no policy has more hits with
/// these sets. In larger batches the next use is that of a batch, more uses there come first, and the result is a guide, which a policy may exceed.
///
/// ```
/// use hotrow::GroupConfig;
/// use hotrow_plan::simulate::Best;
///
/// let config = GroupConfig::new(&[10], 1).with_ways(2).with_cache_rows(2); // ten rows, one set of two ways
/// let batches = [1, 2, 3, 1, 2].map(|id| [id]);
/// let mut cache = Best::new(batches.iter().map(|batch| &batch[..]), &config)?;
/// batches.iter().for_each(|batch| cache.step(batch));
/// assert_eq!((cache.counters().hits, cache.counters().conflicts), (2, 1)); // 3 is bypassed
/// # Ok::<(), hotrow::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Best {
    layout: Layout,
    /// The rows of each set, each behind its next use.
    sets: Vec<BTreeSet<(u64, u32)>>,
    /// For each access to come, the last one first, the next use of its row: the batch, and below it 2^32 - 1 less the uses there.
    next: Vec<u64>,
    /// For each resident row, the use behind which its set lists it.
    listed: Vec<Option<u64>>,
    counters: Counters,
}

impl Best {
    /// Prepares to play these batches, none of them empty, through the empty cache of a group; of the configuration tables, cache rows, ways and shares
    /// count. Takes up to 32 bytes for each row and 8 for each access.
    ///
    /// # Errors
    /// As [`Simulator::new`](crate::simulate::Simulator::new).
    pub fn new<'b>(batches: impl DoubleEndedIterator<Item = &'b [u32]>, config: &GroupConfig) -> Result<Self, Error> {
        let layout = layout_of(config)?;
        let sets = empty_sets(&layout)?;
        let (mut later, mut next) = (Vec::new(), Vec::new());
        for (batch, now) in batches.rev().zip((0..NEVER >> 32).rev()) {
            for &id in batch.iter().rev() {
                later.resize(later.len().max(id as usize + 1), [NEVER; 2]);
                // The use in this batch, and the one behind it.
                let [first, second] = &mut later[id as usize];
                if *first >> 32 != now {
                    (*first, *second) = (now << 32 | u64::from(u32::MAX), *first);
                }
                *first -= 1;
                next.push(*second);
            }
        }
        let listed = vec![None; later.len()];
        Ok(Self { layout, sets, next, listed, counters: Counters::default() })
    }

    /// The counters so far.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Whether the row is in the cache.
    #[must_use]
    pub fn holds(&self, row: u32) -> bool {
        self.listed.get(row as usize).is_some_and(Option::is_some)
    }

    /// Plays the next batch, of those that [`new`](Self::new) was given.
    ///
    /// # Panics
    /// If it has more accesses than are left, or if there is no row of an id.
    pub fn step(&mut self, batch: &[u32]) {
        let Self { next, listed, counters, .. } = self;
        assert!(batch.len() <= next.len(), "best: wanted a batch that it was made for, found one behind the last");
        let rest = next.len() - batch.len();
        let mut batch: Vec<(u64, u32)> = next.drain(rest..).rev().zip(batch.iter().copied()).collect();
        counters.accesses += batch.len() as u64;
        counters.hits += batch.iter().filter(|(_, id)| listed[*id as usize].is_some()).count() as u64;
        if batch.len() > 1 {
            batch.sort_unstable();
            batch.dedup();
        }
        counters.unique += batch.len() as u64;
        let of_row = self.layout.sets_of_rows();
        let home = |id| of_row.set_of(id) as usize;
        batch.retain(|&(next, id)| {
            let Some(known) = &mut listed[id as usize] else { return true };
            let set = &mut self.sets[home(id)];
            set.remove(&(*known, id));
            set.insert((next, id));
            *known = next;
            false
        });
        counters.unique_misses += batch.len() as u64;
        for (next, id) in batch {
            // A row of a table without a share has no set.
            let Some(set) = self.sets.get_mut(home(id)) else {
                counters.conflicts += 1;
                continue;
            };
            if set.len() == self.layout.ways as usize {
                let Some((_, gone)) = set.last().copied().filter(|&(last, _)| last > next) else {
                    counters.conflicts += 1;
                    continue;
                };
                set.pop_last();
                listed[gone as usize] = None;
                counters.evictions += 1;
            }
            set.insert((next, id));
            listed[id as usize] = Some(next);
            counters.admitted += 1;
        }
    }
}
