//! Step scratch of a parameter-shared table, sized by the batch, grown when a larger one comes. As in `gpu/space.rs` one list makes the
//! buffers and the memory plan.

use crate::{
    Error,
    gpu::{
        Context,
        merge::CHUNK,
        robe_runs::BLOCK,
        sort::{SortScratch, SortSpace},
        space::{Make, grown, in_context},
    },
    layout::{Params, Robe, Step},
};

/// The uniforms of a call.
pub(crate) struct Uniforms {
    pub(crate) params: wgpu::Buffer,
    pub(crate) robe: wgpu::Buffer,
}

impl Uniforms {
    pub(super) fn new(context: &Context, params: &Params, robe: &Robe) -> Self {
        Self { params: context.uniform(params), robe: context.uniform(robe) }
    }
}

/// What forward leaves for backward.
#[derive(Debug)]
pub(crate) struct Space<B = wgpu::Buffer> {
    /// Indices it has room for.
    pub(super) capacity: u32,
    pub(crate) step: B,
    pub(crate) keys: B,
    pub(crate) access: B,
    pub(crate) hashes: B,
}

impl Space {
    /// One with room for `indices`: that in `space`, or a new one there.
    pub(super) fn grown<'s>(space: &'s mut Option<Self>, context: &Context, indices: u32) -> Result<&'s Self, Error> {
        grown(space, context, |space| space.capacity >= indices, || Self::of(&mut in_context(context), indices))
    }
}

impl<B> Space<B> {
    /// The list of its buffers.
    pub(crate) fn of(make: &mut Make<'_, B>, indices: u32) -> Result<Self, Error> {
        let capacity = indices.max(1);
        let n = u64::from(capacity);
        Ok(Self {
            capacity,
            step: make("step", size_of::<Step>() as u64)?,
            keys: make("keys", n * 4)?,
            access: make("access", n * 8)?,
            hashes: make("hashes", n * 4)?,
        })
    }
}

/// The chunks of a batch, for its backward.
#[derive(Debug)]
pub(crate) struct Chunks<B = wgpu::Buffer> {
    /// Chunks there is room for.
    pub(super) capacity: u32,
    pub(crate) keys: B,
    pub(crate) access: B,
    pub(crate) sorted: SortSpace<B>,
    pub(crate) sort: SortScratch<B>,
    pub(crate) segment: B,
    pub(crate) starts: B,
    /// `access` in sorted order, and the distinct starts behind a header.
    pub(crate) accesses: B,
    pub(crate) targets: B,
    /// Two partial rows for each 128 chunks.
    pub(crate) scratch: B,
}

impl Chunks {
    /// Room for `count` chunks: that in `chunks`, or new there.
    pub(super) fn grown<'s>(
        chunks: &'s mut Option<Self>,
        context: &Context,
        robe: &Robe,
        count: u32,
    ) -> Result<&'s Self, Error> {
        grown(chunks, context, |chunks| chunks.capacity >= count, || Self::of(&mut in_context(context), robe, count))
    }
}

impl<B> Chunks<B> {
    /// The list of its buffers, for `capacity` chunks.
    pub(crate) fn of(make: &mut Make<'_, B>, robe: &Robe, capacity: u32) -> Result<Self, Error> {
        let n = u64::from(capacity);
        let starts = u64::from(capacity.min(robe.starts));
        Ok(Self {
            capacity,
            keys: make("chunk_keys", n * 4)?,
            access: make("chunk_access", n * 8)?,
            sorted: SortSpace::of(make, capacity)?,
            sort: SortScratch::of(make, capacity)?,
            segment: make("segment", n * 4)?,
            starts: make("starts", starts * 4)?,
            accesses: make("accesses", n * 8)?,
            targets: make("targets", (starts + 1) * 16)?,
            scratch: make("scratch", 2 * n.div_ceil(u64::from(CHUNK)) * u64::from(robe.reach + 1) * 4)?,
        })
    }
}

/// Where the runs of a sparse gradient are counted.
#[derive(Debug)]
pub(crate) struct Runs {
    /// Starts there is room for.
    pub(super) capacity: u32,
    pub(crate) runs: wgpu::Buffer,
    /// Weights of each block of starts, then those before it; and of all.
    pub(crate) blocks: wgpu::Buffer,
    pub(crate) total: wgpu::Buffer,
}

impl Runs {
    /// Room for `starts` of them: that in `runs`, or new there.
    pub(super) fn grown<'s>(runs: &'s mut Option<Self>, context: &Context, starts: u32) -> Result<&'s Self, Error> {
        grown(runs, context, |runs| runs.capacity >= starts, || Self::new(context, starts))
    }

    fn new(context: &Context, capacity: u32) -> Result<Self, Error> {
        let make = |what, words: u64| context.buffer(what, 4 * words, wgpu::BufferUsages::empty());
        let blocks = u64::from(capacity.div_ceil(BLOCK));
        Ok(Self {
            capacity,
            runs: make("runs", 2 * u64::from(capacity))?,
            blocks: make("blocks", blocks)?,
            total: make("total", 1)?,
        })
    }
}
