//! Step scratch, reused from step to step.

use crate::{
    cpu::{share, sort::Sorter},
    error::Error,
    host::alloc::zeroed,
    table::layout::Layout,
};

/// Scratch of a training forward and its backward.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) capacity: u32,
    pub(crate) sorter: Sorter,
    /// The output row and the factor of each access, where the sort carries numbers of accesses along, and not output rows.
    pub(crate) factors: Vec<[u32; 2]>,
    /// The distinct rows of a step with a cache.
    pub(crate) distinct: Option<Distinct>,
    /// The number of the step whose lists these are.
    pub(crate) t: u32,
    /// Number of accesses listed.
    pub(crate) accesses: usize,
    /// Whether the sorted list has the numbers of accesses when the backward begins; else it has their output rows.
    pub(crate) numbered: bool,
    /// Whether the distinct rows of the step are counted.
    pub(crate) settled: bool,
}

impl Space {
    /// Allocates scratch for `indices` indices.
    pub(crate) fn new(layout: &Layout, indices: u32) -> Result<Self, Error> {
        // Some spare room, so that batches of nearly one size do not reallocate again and again.
        let capacity = (indices + indices / 8).max(64);
        let n = capacity as usize;
        Ok(Self {
            capacity,
            sorter: Sorter::new(n)?,
            factors: zeroed("access", n)?,
            distinct: if layout.sets > 0 { Some(Distinct::new(layout, n)?) } else { None },
            t: 0,
            accesses: 0,
            numbered: false,
            settled: true,
        })
    }

    /// Empties the lists: the step reads no row.
    pub(crate) fn clear(&mut self) {
        (self.accesses, self.numbered, self.settled) = (0, false, true);
        self.sorter.sort(0, 1);
        self.distinct.iter_mut().for_each(|distinct| distinct.listed = [0; 2]);
    }
}

/// Lists of the distinct rows of a batch. A distinct row is known by its *start*: the position of its first access in sorted order.
#[derive(Debug)]
pub(crate) struct Distinct {
    /// Each distinct row with its start, ascending.
    pub(crate) rows: Vec<u64>,
    pub(crate) len: usize,
    /// At a row's start: the end of its accesses.
    pub(crate) ends: Vec<u32>,
    /// At a row's start: its slot, or NONE if it has none.
    pub(crate) places: Vec<u32>,
    /// For each access, in the order of the batch, the slot of its row, or NONE.
    pub(crate) slots: Vec<u32>,
    /// At a missed row's start: by what it is admitted, its count or its frequency.
    pub(crate) keys: Vec<u32>,
    /// The missed rows, by set.
    pub(crate) misses: Sorter,
    /// The dirty rows that leave, with their slots.
    pub(crate) victims: Sorter,
    /// For each missed row, in order of `misses`, its slot, or NONE.
    pub(crate) loads: Vec<u32>,
    /// The resident rows, by slot.
    pub(crate) residents: Sorter,
    /// The bypassed rows, ascending.
    pub(crate) bypassed: Vec<u64>,
    /// The numbers of resident and of bypassed rows.
    pub(crate) listed: [usize; 2],
    pub(crate) lengths: Vec<usize>,
}

impl Distinct {
    pub(crate) fn new(layout: &Layout, n: usize) -> Result<Self, Error> {
        let rows = n.min(layout.total_rows as usize);
        Ok(Self {
            rows: zeroed("unique", n)?,
            len: 0,
            ends: zeroed("segment", n)?,
            places: zeroed("places", n)?,
            slots: zeroed("places", n)?,
            keys: zeroed("miss_keys", n)?,
            misses: Sorter::new(n)?,
            victims: Sorter::new(rows)?,
            loads: zeroed("swaps", rows)?,
            residents: Sorter::new(n)?,
            bypassed: zeroed("targets", n)?,
            listed: [0; 2],
            lengths: zeroed("scan", 2 * share::parts(n))?,
        })
    }
}
