//! The cache that knows the future, an upper bound for every policy.

use crate::simulate::{GeometryError, SimulatedCounters, geometry, places::Places};
use std::collections::BTreeSet;

/// Stands for no later use.
const NEVER: u64 = u64::MAX;

/// Plays a known trace through a cache of sets that always gives way to what is used first: of a set's rows and those that come, the ones whose next use
/// is nearest have its ways, and the others leave or are bypassed (Belady's rule, with bypass). In batches of one access no policy has more hits with
/// these sets. In larger batches the next use is that of a batch, more uses there come first, and the result is a guide, which a policy may exceed.
///
/// ```
/// use hotrow_plan::simulate::Best;
///
/// let mut cache = Best::new(&[1, 2, 3, 1, 2], 1, [10, 1, 2])?; // batches of one access; ten rows, one set of two ways
/// while cache.step() {}
/// assert_eq!((cache.counters().hits, cache.counters().conflicts), (2, 1)); // 3 is bypassed
/// # Ok::<(), hotrow_plan::simulate::GeometryError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Best<'a> {
    ids: &'a [u32],
    batch: usize,
    /// Accesses played so far.
    at: usize,
    ways: usize,
    places: Places,
    /// The rows of each set, each behind its next use.
    sets: Vec<BTreeSet<(u64, u32)>>,
    /// For each access the next use of its row: the batch, and below it 2^32 - 1 less the uses there.
    next: Vec<u64>,
    /// For each resident row, the use behind which its set lists it.
    listed: Vec<Option<u64>>,
    counters: SimulatedCounters,
}

impl<'a> Best<'a> {
    /// Prepares to play `ids` in batches of `batch` accesses, at least 1, through an empty cache for tables of `rows` rows together, of `sets` sets of
    /// `ways` ways. Takes up to 32 bytes for each row and 8 for each access.
    ///
    /// # Errors
    /// As [`Simulator::new`](crate::simulate::Simulator::new).
    ///
    /// # Panics
    /// If there is no row of an id.
    pub fn new(ids: &'a [u32], batch: usize, [rows, sets, ways]: [u32; 3]) -> Result<Self, GeometryError> {
        let (places, batch) = (Places::new(rows, sets, ways, 1)?, batch.max(1));
        let known = ids.iter().max().map_or(0, |&last| last as usize + 1);
        let (mut later, mut next) = (vec![[NEVER; 2]; known], vec![NEVER; ids.len()]);
        for (at, &id) in ids.iter().enumerate().rev() {
            // The use in this batch, and the one behind it.
            let (now, [first, second]) = ((at / batch) as u64, &mut later[id as usize]);
            if *first >> 32 != now {
                (*first, *second) = (now << 32 | u64::from(u32::MAX), *first);
            }
            *first -= 1;
            next[at] = *second;
        }
        let (listed, sets) = (vec![None; known], geometry::empty_sets(sets, ways)?);
        Ok(Self {
            ids,
            batch,
            at: 0,
            ways: ways as usize,
            places,
            sets,
            next,
            listed,
            counters: SimulatedCounters::default(),
        })
    }

    /// The counters so far.
    #[must_use]
    pub const fn counters(&self) -> SimulatedCounters {
        self.counters
    }

    /// Whether the row is in the cache.
    #[must_use]
    pub fn holds(&self, row: u32) -> bool {
        self.listed.get(row as usize).is_some_and(Option::is_some)
    }

    /// Plays the next batch; `false` if it was the last one.
    pub fn step(&mut self) -> bool {
        let end = self.ids.len().min(self.at + self.batch);
        let Self { ids, next, listed, counters, .. } = self;
        let mut batch: Vec<(u64, u32)> = (self.at..end).map(|at| (next[at], ids[at])).collect();
        counters.accesses += batch.len() as u64;
        counters.hits += batch.iter().filter(|(_, id)| listed[*id as usize].is_some()).count() as u64;
        if batch.len() > 1 {
            batch.sort_unstable();
            batch.dedup();
        }
        counters.unique += batch.len() as u64;
        let home = |id| self.places.set_of(id) as usize;
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
            let set = &mut self.sets[home(id)];
            if set.len() == self.ways {
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
        self.at = end;
        end < self.ids.len()
    }
}
