//! Step scratch: what a batch needs between its first stage and its last. Sized by the batch, grown when a larger one comes.

use super::{
    Context, merge,
    sort::{SortScratch, SortSpace},
};
use crate::{Error, layout::Layout};

/// A batch's buffers, ready to bind. `weights` and an empty batch's `indices` are a buffer nobody reads.
pub(crate) struct Bound<'a> {
    pub(crate) indices: wgpu::BindingResource<'a>,
    pub(crate) offsets: wgpu::BindingResource<'a>,
    pub(crate) weights: wgpu::BindingResource<'a>,
}

/// A list's cut into shards, and the indirect dispatch of each.
#[derive(Debug)]
pub(crate) struct Ranges {
    pub(crate) range: wgpu::Buffer,
    pub(crate) groups: wgpu::Buffer,
}

impl Ranges {
    fn new(context: &Context, shards: u32) -> Result<Self, Error> {
        Ok(Self {
            range: context.buffer("ranges", u64::from(shards) * 8, wgpu::BufferUsages::empty())?,
            groups: context.buffer("ranges", u64::from(shards) * 12, wgpu::BufferUsages::INDIRECT)?,
        })
    }
}

/// Scratch of forward and backward.
#[derive(Debug)]
pub(crate) struct Space {
    /// Indices it has room for.
    pub(crate) capacity: u32,
    pub(crate) step: wgpu::Buffer,
    pub(crate) keys: wgpu::Buffer,
    pub(crate) access: wgpu::Buffer,
    pub(crate) by_row: SortSpace,
    pub(crate) by_set: SortSpace,
    pub(crate) by_victim: SortSpace,
    pub(crate) sort: SortScratch,
    pub(crate) segment: wgpu::Buffer,
    pub(crate) starts: wgpu::Buffer,
    pub(crate) unique: wgpu::Buffer,
    pub(crate) rows: wgpu::Buffer,
    pub(crate) row_ranges: Ranges,
    pub(crate) touch_ranges: Ranges,
    pub(crate) set_keys: wgpu::Buffer,
    pub(crate) set_segment: wgpu::Buffer,
    pub(crate) set_starts: wgpu::Buffer,
    pub(crate) victim_rows: wgpu::Buffer,
    pub(crate) victim_slots: wgpu::Buffer,
    pub(crate) victim_ranges: Ranges,
    pub(crate) fetch_to: wgpu::Buffer,
    pub(crate) sources: wgpu::Buffer,
    pub(crate) places: wgpu::Buffer,
    pub(crate) scratch: wgpu::Buffer,
    pub(crate) grads: wgpu::Buffer,
    pub(crate) partials: wgpu::Buffer,
}

impl Space {
    /// `train`: with what admission and backward need.
    pub(crate) fn new(context: &Context, layout: &Layout, indices: u32, train: bool) -> Result<Self, Error> {
        let capacity = indices.max(1);
        let rows = layout.most_distinct(capacity);
        let (n, r) = (u64::from(capacity), u64::from(rows));
        let trained = if train { r } else { 0 };
        let tiles = if train { n.div_ceil(u64::from(merge::TILE)) } else { 0 };
        let dim = u64::from(layout.dim);
        let buffer = |what, size: u64| context.buffer(what, size, wgpu::BufferUsages::empty());
        Ok(Self {
            capacity,
            step: buffer("step", 64)?,
            keys: buffer("keys", n * 4)?,
            access: buffer("access", n * 8)?,
            segment: buffer("segment", n * 4)?,
            starts: buffer("starts", r * 4)?,
            unique: buffer("unique", r * 16)?,
            rows: buffer("rows", r * 4)?,
            set_keys: buffer("set_keys", r * 4)?,
            set_segment: buffer("set_segment", trained * 4)?,
            set_starts: buffer("set_starts", trained * 4)?,
            victim_rows: buffer("victims", trained * 4)?,
            victim_slots: buffer("victims", trained * 4)?,
            fetch_to: buffer("fetch_to", r * 4)?,
            sources: buffer("sources", r * 4)?,
            places: buffer("places", n * 4)?,
            scratch: buffer("scratch", r * u64::from(layout.row_words) * 4)?,
            grads: buffer("grads", trained * dim * 4)?,
            partials: buffer("partials", tiles * 2 * dim * 4)?,
            by_row: SortSpace::new(context, capacity)?,
            by_set: SortSpace::new(context, trained as u32)?,
            by_victim: SortSpace::new(context, if layout.shards > 1 { trained as u32 } else { 0 })?,
            sort: SortScratch::new(context, capacity)?,
            row_ranges: Ranges::new(context, layout.shards)?,
            touch_ranges: Ranges::new(context, layout.shards)?,
            victim_ranges: Ranges::new(context, layout.shards)?,
        })
    }
}

/// Scratch of flush: lists as long as the cache.
#[derive(Debug)]
pub(crate) struct FlushSpace {
    pub(crate) step: wgpu::Buffer,
    pub(crate) rows: wgpu::Buffer,
    pub(crate) sources: wgpu::Buffer,
    pub(crate) by_row: SortSpace,
    pub(crate) sort: SortScratch,
    pub(crate) ranges: Ranges,
    /// Stands where step scratch stands otherwise; no row of a flush is in it.
    pub(crate) no_scratch: wgpu::Buffer,
}

impl FlushSpace {
    pub(crate) fn new(context: &Context, layout: &Layout) -> Result<Self, Error> {
        let slots = layout.slots();
        let buffer = |what, size: u64| context.buffer(what, size, wgpu::BufferUsages::empty());
        Ok(Self {
            step: buffer("step", 64)?,
            rows: buffer("flush rows", u64::from(slots) * 4)?,
            sources: buffer("flush sources", u64::from(slots) * 4)?,
            by_row: SortSpace::new(context, if layout.shards > 1 { slots } else { 0 })?,
            sort: SortScratch::new(context, slots)?,
            ranges: Ranges::new(context, layout.shards)?,
            no_scratch: buffer("scratch", 16)?,
        })
    }
}
