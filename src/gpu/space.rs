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

/// Scratch of forward and backward.
#[derive(Debug)]
pub(crate) struct Space {
    /// Indices it has room for.
    pub(crate) capacity: u32,
    pub(crate) step: wgpu::Buffer,
    pub(crate) keys: wgpu::Buffer,
    pub(crate) access: wgpu::Buffer,
    pub(crate) sorted: SortSpace,
    pub(crate) sort: SortScratch,
    pub(crate) segment: wgpu::Buffer,
    pub(crate) starts: wgpu::Buffer,
    pub(crate) miss_keys: wgpu::Buffer,
    pub(crate) miss_index: wgpu::Buffer,
    /// What happens at slots and scratch rows before gather.
    pub(crate) moves: wgpu::Buffer,
    pub(crate) unique: wgpu::Buffer,
    pub(crate) places: wgpu::Buffer,
    /// Backward: `access` in sorted order, and the distinct rows behind a header.
    pub(crate) accesses: wgpu::Buffer,
    pub(crate) targets: wgpu::Buffer,
    /// Bypassed rows, laid out as slots are, then two partial rows for each of merge's tiles.
    pub(crate) scratch: wgpu::Buffer,
    /// First Quad of the partial rows.
    pub(crate) partials: u32,
}

impl Space {
    /// `train`: with what admission and backward need.
    pub(crate) fn new(context: &Context, layout: &Layout, indices: u32, train: bool) -> Result<Self, Error> {
        let capacity = indices.max(1);
        let rows = layout.most_distinct(capacity);
        let (n, r) = (u64::from(capacity), u64::from(rows));
        let tiles = if train { n.div_ceil(u64::from(merge::CHUNK)) } else { 0 };
        let dim = u64::from(layout.dim);
        let buffer = |what, size: u64| context.buffer(what, size, wgpu::BufferUsages::empty());
        Ok(Self {
            capacity,
            step: buffer("step", 64)?,
            keys: buffer("keys", n * 4)?,
            access: buffer("access", n * 8)?,
            segment: buffer("segment", n * 4)?,
            starts: buffer("starts", r * 4)?,
            miss_keys: buffer("miss_keys", n * 4)?,
            miss_index: buffer("miss_index", n * 4)?,
            moves: buffer("moves", r * 16)?,
            unique: buffer("unique", r * 16)?,
            places: buffer("places", n * 4)?,
            accesses: buffer("accesses", if train { n * 8 } else { 0 })?,
            targets: buffer("targets", if train { (r + 1) * 16 } else { 0 })?,
            scratch: buffer("scratch", (r * u64::from(layout.slot_words()) + tiles * 2 * dim) * 4)?,
            // Fits: the buffer above has been made.
            partials: (r * u64::from(layout.row_quads)) as u32,
            sorted: SortSpace::new(context, capacity)?,
            sort: SortScratch::new(context, capacity)?,
        })
    }
}

/// Scratch of flush: lists as long as the cache.
#[derive(Debug)]
pub(crate) struct FlushSpace {
    pub(crate) step: wgpu::Buffer,
    pub(crate) moves: wgpu::Buffer,
    /// Stands where step scratch stands otherwise; no row of a flush is in it.
    pub(crate) no_scratch: wgpu::Buffer,
}

impl FlushSpace {
    pub(crate) fn new(context: &Context, layout: &Layout) -> Result<Self, Error> {
        let slots = layout.slots();
        let buffer = |what, size: u64| context.buffer(what, size, wgpu::BufferUsages::empty());
        Ok(Self {
            step: buffer("step", 64)?,
            moves: buffer("moves", u64::from(slots) * 16)?,
            no_scratch: buffer("scratch", 16)?,
        })
    }
}
