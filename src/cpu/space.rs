//! Step scratch, as in `gpu/space.rs`: sized by the batch, grown when a larger one comes, used again and again.

use super::{
    memory::zeroed,
    merge,
    sort::{SortScratch, SortSpace},
};
use crate::{
    Error,
    layout::{Layout, Move, Step, Target, Unique},
};

/// Scratch of forward and backward.
#[derive(Debug)]
pub(super) struct Space {
    pub(super) capacity: u32,
    pub(super) step: Step,
    pub(super) keys: Vec<u32>,
    pub(super) access: Vec<[u32; 2]>,
    pub(super) sorted: SortSpace,
    pub(super) sort: SortScratch,
    pub(super) segment: Vec<u32>,
    pub(super) starts: Vec<u32>,
    pub(super) miss_keys: Vec<u32>,
    pub(super) miss_index: Vec<u32>,
    pub(super) moves: Vec<Move>,
    pub(super) unique: Vec<Unique>,
    pub(super) places: Vec<u32>,
    pub(super) scratch: Vec<f32>,
    /// First Quad of the partial rows in `scratch`.
    pub(super) partials: u32,
    pub(super) accesses: Vec<[u32; 2]>,
    pub(super) targets: Vec<Target>,
}

impl Space {
    /// `train`: with what admission and backward need.
    pub(super) fn new(layout: &Layout, indices: u32, train: bool) -> Result<Self, Error> {
        // A little more than asked for, so that batches of nearly one size do not grow it again and again.
        let capacity = (indices + indices / 8).max(64);
        let rows = capacity.min(layout.total_rows) as usize;
        let n = capacity as usize;
        let tiles = if train { n.div_ceil(merge::CHUNK) } else { 0 };
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

/// Scratch of flush: a list as long as the cache.
#[derive(Debug)]
pub(super) struct FlushSpace {
    pub(super) step: Step,
    pub(super) moves: Vec<Move>,
}

impl FlushSpace {
    pub(super) fn new(layout: &Layout) -> Result<Self, Error> {
        Ok(Self { step: Step::default(), moves: zeroed("moves", layout.slots() as usize)? })
    }
}
