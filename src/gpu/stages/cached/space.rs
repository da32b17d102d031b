//! Step scratch: the buffers that a batch needs from its first stage to its last. Its size follows the largest batch.
//!
//! There is one list of names and sizes: `make` makes buffers from it, or lines of a memory plan (`src/gpu/memory/cached.rs`).

use crate::{
    error::Error,
    gpu::{
        engine::{bind::Batch, call::named, context::Context, scratch::Make},
        stages::sort::space::{SortScratch, SortSpace, digit_bytes},
    },
    memory::Allocation,
    table::{
        abi::{MERGE_CHUNK, Params, Step},
        layout::Layout,
    },
};

/// A batch's buffers, ready to bind. A batch without weights or without indices has the dummy buffer in their place.
pub(crate) struct Bound<'a> {
    pub(crate) indices: wgpu::BindingResource<'a>,
    pub(crate) offsets: wgpu::BindingResource<'a>,
    pub(crate) weights: wgpu::BindingResource<'a>,
    /// The list of wanted rows in the place of indices and offsets.
    pub(crate) wanted: Option<&'a wgpu::Buffer>,
}

named!(Bound<'_>: indices, offsets, weights);

impl<'a> Bound<'a> {
    /// Checks and binds the caller's buffers; binds `dummy` for a buffer that is missing.
    pub(crate) fn of(
        context: &Context,
        dummy: &'a wgpu::Buffer,
        batch: &Batch<'a>,
        params: &Params,
    ) -> Result<Self, Error> {
        let dummy = dummy.as_entire_binding();
        Ok(Self {
            indices: context.bind_or("indices", batch.indices, u64::from(params.indices) * 4, &dummy)?,
            offsets: context.bind("offsets", batch.offsets, (u64::from(params.bags) + 1) * 4)?,
            weights: context.bind_or("weights", batch.weights, u64::from(params.indices) * 4, &dummy)?,
            wanted: None,
        })
    }

    /// Takes a list of wanted rows; binds `dummy` for every buffer of a batch.
    pub(crate) fn of_wanted(dummy: &'a wgpu::Buffer, list: &'a wgpu::Buffer) -> Self {
        let dummy = || dummy.as_entire_binding();
        Self { indices: dummy(), offsets: dummy(), weights: dummy(), wanted: Some(list) }
    }
}

/// Scratch of forward and backward.
#[derive(Debug)]
pub(crate) struct Space<B = wgpu::Buffer> {
    /// Number of indices that it has room for.
    pub(crate) capacity: u32,
    pub(crate) step: B,
    pub(crate) keys: B,
    pub(crate) access: B,
    pub(crate) sorted: SortSpace<B>,
    pub(crate) sort: SortScratch<B>,
    pub(crate) segment: B,
    pub(crate) starts: B,
    /// The keys of missed accesses, then from `miss_values` on their indices.
    pub(crate) misses: B,
    /// For backward: the lowest digits of rows, block by block.
    pub(crate) row_digits: B,
    /// The list of swaps.
    pub(crate) swaps: B,
    pub(crate) places: B,
    /// For backward: `access` in sorted order, and the distinct rows behind a header.
    pub(crate) accesses: B,
    pub(crate) targets: B,
    /// Bypassed rows in the layout of slots, then two partial rows for each of merge's tiles.
    pub(crate) scratch: B,
    /// First Quad of the partial rows.
    pub(crate) partials: u32,
    /// The names and bytes of all these buffers.
    pub(crate) made: Vec<Allocation>,
}

named!(Space: step, keys, access, segment, starts, misses, row_digits, swaps, places, accesses, targets, scratch);

impl Space {
    /// Allocates scratch for `indices` indices. With `train` it includes what admission and backward need.
    pub(crate) fn new(context: &Context, layout: &Layout, indices: u32, train: bool) -> Result<Self, Error> {
        Self::of(&mut Make::buffers(context), layout, indices, train)
    }

    /// The word of `misses` from which on it has indices, where a binding may begin on every device.
    pub(crate) const fn miss_values(&self) -> u32 {
        miss_values(self.capacity)
    }

    /// The indices of missed accesses.
    pub(crate) fn missed_indices(&self) -> wgpu::BindingResource<'_> {
        let offset = 4 * u64::from(self.miss_values());
        wgpu::BindingResource::Buffer(wgpu::BufferBinding { buffer: &self.misses, offset, size: None })
    }
}

const fn miss_values(capacity: u32) -> u32 {
    capacity.next_multiple_of(64)
}

impl<B> Space<B> {
    /// Makes the buffers from the list of their names and sizes.
    pub(crate) fn of(make: &mut Make<'_, B>, layout: &Layout, indices: u32, train: bool) -> Result<Self, Error> {
        let capacity = indices.max(1);
        let rows = layout.most_distinct(capacity);
        let (n, r) = (u64::from(capacity), u64::from(rows));
        let tiles = if train { n.div_ceil(u64::from(MERGE_CHUNK)) } else { 0 };
        let dim = u64::from(layout.row.dim);
        Ok(Self {
            capacity,
            step: make.one("step", size_of::<Step>() as u64)?,
            keys: make.one("keys", n * 4)?,
            access: make.one("access", n * 8)?,
            segment: make.one("segment", n * 4)?,
            starts: make.one("starts", r * 8)?,
            misses: make.one("misses", (u64::from(miss_values(capacity)) + n) * 4)?,
            row_digits: make.one("scan", if train { digit_bytes(capacity) } else { 0 })?,
            swaps: make.one("swaps", r * 16)?,
            places: make.one("places", n * 4)?,
            accesses: make.one("accesses", if train { n * 8 } else { 0 })?,
            targets: make.one("targets", if train { (r + 1) * 16 } else { 0 })?,
            scratch: make.one("scratch", (r * u64::from(layout.slot_words()) + tiles * 2 * dim) * 4)?,
            // This fits in 32 bits, because the buffer above has been made.
            partials: (r * u64::from(layout.row.row_quads)) as u32,
            sorted: SortSpace::of(make, capacity)?,
            sort: SortScratch::of(make, capacity)?,
            made: make.made(),
        })
    }
}

/// Scratch of a flush. Its list is as long as the cache.
#[derive(Debug)]
pub(crate) struct FlushSpace<B = wgpu::Buffer> {
    pub(crate) step: B,
    pub(crate) swaps: B,
    /// Bound in place of step scratch. A flush has no rows in it.
    pub(crate) no_scratch: B,
}

named!(FlushSpace: step, swaps, no_scratch as "scratch");

impl FlushSpace {
    pub(crate) fn new(context: &Context, layout: &Layout) -> Result<Self, Error> {
        Self::of(&mut Make::buffers(context), layout)
    }
}

impl<B> FlushSpace<B> {
    /// Makes the buffers from the list of their names and sizes.
    pub(crate) fn of(make: &mut Make<'_, B>, layout: &Layout) -> Result<Self, Error> {
        Ok(Self {
            step: make.one("step", size_of::<Step>() as u64)?,
            swaps: make.one("swaps", u64::from(layout.slots()) * 16)?,
            no_scratch: make.one("scratch", 16)?,
        })
    }
}
