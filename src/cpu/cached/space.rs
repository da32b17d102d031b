//! Step scratch, reused from step to step.

use std::ops::Range;

use crate::{
    cpu::{
        share::{self, number},
        sort::Sorter,
    },
    error::Error,
    host::alloc::zeroed,
    table::layout::Layout,
};

/// Scratch of a training forward and its backward.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) capacity: u32,
    pub(crate) sorter: Sorter,
    /// The output row and the factor of each access, if there are factors.
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
        self.distinct.iter_mut().for_each(|distinct| (distinct.len, distinct.listed) = (0, [0; 2]));
    }
}

/// Lists of the distinct rows of a batch. Other lists name a row by its position in `rows`.
#[derive(Debug)]
pub(crate) struct Distinct {
    /// Each distinct row with the position of its first access in sorted order, ascending; then NONE with the number of accesses.
    pub(crate) rows: Vec<u64>,
    pub(crate) len: usize,
    /// The slot of each distinct row, or NONE if it has none.
    pub(crate) places: Vec<u32>,
    /// For each access, in the order of the batch, its output row, then in the same place the slot of its row, or NONE.
    pub(crate) slots: Vec<u32>,
    /// By what each missed row is admitted: its count, or its frequency.
    pub(crate) keys: Vec<u32>,
    /// The missed rows, by set.
    pub(crate) misses: Sorter,
    /// The dirty rows that leave, with their slots.
    pub(crate) victims: Sorter,
    /// For each missed row, in order of `misses`, its slot, or NONE.
    pub(crate) loads: Vec<u32>,
    /// The resident rows, each under its slot, by slot.
    pub(crate) residents: Sorter,
    /// The bypassed rows, each with its position, ascending.
    pub(crate) bypassed: Vec<u64>,
    /// The numbers of resident and of bypassed rows.
    pub(crate) listed: [usize; 2],
    pub(crate) lengths: Vec<usize>,
}

/// The accesses of a row of [`Distinct::rows`], named by an entry of another list.
pub(crate) fn run_of(entry: u64, rows: &[u64]) -> Range<usize> {
    let at = number(entry) as usize;
    number(rows[at]) as usize..number(rows[at + 1]) as usize
}

impl Distinct {
    pub(crate) fn new(layout: &Layout, n: usize) -> Result<Self, Error> {
        let rows = n.min(layout.total_rows as usize);
        Ok(Self {
            rows: zeroed("unique", n + 1)?,
            len: 0,
            places: zeroed("places", rows)?,
            slots: zeroed("places", n)?,
            keys: zeroed("miss_keys", rows)?,
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
