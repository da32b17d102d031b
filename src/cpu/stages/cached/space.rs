//! Step scratch, as in `gpu/stages/cached/space.rs`: sized by the batch, reused, and reallocated when a larger batch
//! comes.

use crate::{
    cpu::stages::{
        cached::merge::CHUNK,
        sort::radix::{SortScratch, SortSpace},
    },
    error::Error,
    host::alloc::zeroed,
    table::layout::{Layout, Move, Step, Target, Unique},
};

/// Scratch of a forward and its backward.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) capacity: u32,
    pub(crate) step: Step,
    pub(crate) keys: Vec<u32>,
    pub(crate) access: Vec<[u32; 2]>,
    pub(crate) sorted: SortSpace,
    pub(crate) sort: SortScratch,
    pub(crate) segment: Vec<u32>,
    pub(crate) starts: Vec<u32>,
    pub(crate) miss_keys: Vec<u32>,
    pub(crate) miss_index: Vec<u32>,
    pub(crate) moves: Vec<Move>,
    pub(crate) unique: Vec<Unique>,
    pub(crate) places: Vec<u32>,
    pub(crate) scratch: Vec<f32>,
    /// The first Quad of the partial rows in `scratch`.
    pub(crate) partials: u32,
    pub(crate) accesses: Vec<[u32; 2]>,
    pub(crate) targets: Vec<Target>,
}

impl Space {
    /// Allocates scratch for `indices` indices. With `train` it includes what admission and backward need.
    pub(crate) fn new(layout: &Layout, indices: u32, train: bool) -> Result<Self, Error> {
        // Some spare room, so that batches of nearly one size do not reallocate again and again.
        let capacity = (indices + indices / 8).max(64);
        let rows = capacity.min(layout.total_rows) as usize;
        let n = capacity as usize;
        let tiles = if train { n.div_ceil(CHUNK) } else { 0 };
        let dim = layout.dim as usize;
        Ok(Self {
            capacity,
            step: Step::default(),
            keys: zeroed("keys", n)?,
            access: zeroed("access", n)?,
            sorted: SortSpace::new(n)?,
            sort: SortScratch::new(n)?,
            segment: zeroed("segment", n)?,
            starts: zeroed("starts", rows)?,
            miss_keys: zeroed("miss_keys", n)?,
            miss_index: zeroed("miss_index", n)?,
            moves: zeroed("moves", rows)?,
            unique: zeroed("unique", rows)?,
            places: zeroed("places", n)?,
            scratch: zeroed("scratch", rows * layout.slot_words() as usize + tiles * 2 * dim)?,
            partials: u32::try_from(rows * layout.row_quads as usize).map_err(|_| Error::OutOfMemory {
                what: "scratch",
                bytes: (rows * layout.slot_words() as usize * 4) as u64,
            })?,
            accesses: zeroed("accesses", if train { n } else { 0 })?,
            targets: zeroed("targets", if train { rows + 1 } else { 0 })?,
        })
    }
}

/// Scratch of a flush: a list as long as the cache.
#[derive(Debug)]
pub(crate) struct FlushSpace {
    pub(crate) step: Step,
    pub(crate) moves: Vec<Move>,
}

impl FlushSpace {
    pub(crate) fn new(layout: &Layout) -> Result<Self, Error> {
        Ok(Self { step: Step::default(), moves: zeroed("moves", layout.slots() as usize)? })
    }
}
