//! Step scratch, as in `gpu/space.rs`: sized by the batch, grown when a larger one comes, used again and again.

use super::{
    memory::zeroed,
    merge,
    sort::{SortScratch, SortSpace},
};
use crate::{
    Error,
    layout::{BoundsInfo, Layout, Step, Unique},
};

/// A list's cut into shards.
#[derive(Debug)]
pub(super) struct Ranges {
    pub(super) range: Vec<[u32; 2]>,
    groups: Vec<u32>,
}

impl Ranges {
    fn new(shards: u32) -> Result<Self, Error> {
        let shards = shards as usize;
        Ok(Self { range: zeroed("ranges", shards)?, groups: zeroed("ranges", 3 * shards)? })
    }

    /// Cuts `rows`; `count` tells which of the step's counts is their number.
    pub(super) fn cut(&mut self, layout: &Layout, step: &Step, rows: &[u32], count: usize, sorted: bool) {
        let info = BoundsInfo {
            shards: layout.shards,
            rows_per_shard: layout.rows_per_shard,
            count: count as u32,
            sorted: u32::from(sorted),
            per_group: 1,
            max_groups: 65535,
            ..BoundsInfo::default()
        };
        super::bounds(&info, step, rows, &mut self.range, &mut self.groups);
    }
}

/// Scratch of forward and backward.
#[derive(Debug)]
pub(super) struct Space {
    pub(super) capacity: u32,
    pub(super) step: Step,
    pub(super) keys: Vec<u32>,
    pub(super) access: Vec<[u32; 2]>,
    pub(super) by_row: SortSpace,
    pub(super) by_set: SortSpace,
    pub(super) by_victim: SortSpace,
    pub(super) sort: SortScratch,
    pub(super) segment: Vec<u32>,
    pub(super) starts: Vec<u32>,
    pub(super) unique: Vec<Unique>,
    pub(super) rows: Vec<u32>,
    pub(super) row_ranges: Ranges,
    pub(super) set_keys: Vec<u32>,
    pub(super) set_segment: Vec<u32>,
    pub(super) set_starts: Vec<u32>,
    pub(super) victim_rows: Vec<u32>,
    pub(super) victim_slots: Vec<u32>,
    pub(super) victim_ranges: Ranges,
    pub(super) fetch_to: Vec<u32>,
    pub(super) sources: Vec<u32>,
    pub(super) places: Vec<u32>,
    pub(super) scratch: Vec<f32>,
    pub(super) grads: Vec<f32>,
    pub(super) partials: Vec<f32>,
}

impl Space {
    /// `train`: with what admission and backward need.
    pub(super) fn new(layout: &Layout, indices: u32, train: bool) -> Result<Self, Error> {
        // A little more than asked for, so that batches of nearly one size do not grow it again and again.
        let capacity = (indices + indices / 8).max(64);
        let rows = capacity.min(layout.total_rows) as usize;
        let n = capacity as usize;
        let trained = if train { rows } else { 0 };
        let tiles = if train { n.div_ceil(merge::TILE) } else { 0 };
        let dim = layout.dim as usize;
        Ok(Self {
            capacity,
            step: Step::default(),
            keys: zeroed("keys", n)?,
            access: zeroed("access", n)?,
            by_row: SortSpace::new(n)?,
            by_set: SortSpace::new(trained)?,
            by_victim: SortSpace::new(if layout.shards > 1 { trained } else { 0 })?,
            sort: SortScratch::new(n)?,
            segment: zeroed("segment", n)?,
            starts: zeroed("starts", rows)?,
            unique: zeroed("unique", rows)?,
            rows: zeroed("rows", rows)?,
            row_ranges: Ranges::new(layout.shards)?,
            set_keys: zeroed("set_keys", rows)?,
            set_segment: zeroed("set_segment", trained)?,
            set_starts: zeroed("set_starts", trained)?,
            victim_rows: zeroed("victims", trained)?,
            victim_slots: zeroed("victims", trained)?,
            victim_ranges: Ranges::new(layout.shards)?,
            fetch_to: zeroed("fetch_to", rows)?,
            sources: zeroed("sources", rows)?,
            places: zeroed("places", n)?,
            scratch: zeroed("scratch", rows * layout.row_words as usize)?,
            grads: zeroed("grads", trained * dim)?,
            partials: zeroed("partials", tiles * 2 * dim)?,
        })
    }
}

/// Scratch of flush: lists as long as the cache.
#[derive(Debug)]
pub(super) struct FlushSpace {
    pub(super) step: Step,
    pub(super) rows: Vec<u32>,
    pub(super) sources: Vec<u32>,
    pub(super) by_row: SortSpace,
    pub(super) sort: SortScratch,
    pub(super) ranges: Ranges,
}

impl FlushSpace {
    pub(super) fn new(layout: &Layout) -> Result<Self, Error> {
        let slots = layout.slots() as usize;
        let sorted = if layout.shards > 1 { slots } else { 0 };
        Ok(Self {
            step: Step::default(),
            rows: zeroed("flush rows", slots)?,
            sources: zeroed("flush sources", slots)?,
            by_row: SortSpace::new(sorted)?,
            sort: SortScratch::new(sorted)?,
            ranges: Ranges::new(layout.shards)?,
        })
    }
}
