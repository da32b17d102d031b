//! Step scratch of a parameter-shared table, sized by the batch, grown when a larger one comes.

use crate::{
    Error,
    gpu::{
        Context,
        merge::CHUNK,
        sort::{SortScratch, SortSpace},
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
pub(crate) struct Space {
    /// Indices it has room for.
    pub(super) capacity: u32,
    pub(crate) step: wgpu::Buffer,
    pub(crate) keys: wgpu::Buffer,
    pub(crate) access: wgpu::Buffer,
    pub(crate) hashes: wgpu::Buffer,
}

impl Space {
    /// One with room for `indices`: that in `space`, or a new one there.
    pub(super) fn grown<'s>(space: &'s mut Option<Self>, context: &Context, indices: u32) -> Result<&'s Self, Error> {
        match space.take_if(|space| space.capacity >= indices) {
            Some(enough) => Ok(space.insert(enough)),
            None => {
                *space = None; // freed before the larger one is allocated
                context.forget_bindings();
                Ok(space.insert(Self::new(context, indices.max(1))?))
            }
        }
    }

    fn new(context: &Context, capacity: u32) -> Result<Self, Error> {
        let n = u64::from(capacity);
        let make = |what, bytes| context.buffer(what, bytes, wgpu::BufferUsages::empty());
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
pub(crate) struct Chunks {
    /// Chunks there is room for.
    pub(super) capacity: u32,
    pub(crate) keys: wgpu::Buffer,
    pub(crate) access: wgpu::Buffer,
    pub(crate) sorted: SortSpace,
    pub(crate) sort: SortScratch,
    pub(crate) segment: wgpu::Buffer,
    pub(crate) starts: wgpu::Buffer,
    /// `access` in sorted order, and the distinct starts behind a header.
    pub(crate) accesses: wgpu::Buffer,
    pub(crate) targets: wgpu::Buffer,
    /// Two partial rows for each 128 chunks.
    pub(crate) scratch: wgpu::Buffer,
}

impl Chunks {
    /// Room for `count` chunks: that in `chunks`, or new there.
    pub(super) fn grown<'s>(
        chunks: &'s mut Option<Self>,
        context: &Context,
        robe: &Robe,
        count: u32,
    ) -> Result<&'s Self, Error> {
        match chunks.take_if(|chunks| chunks.capacity >= count) {
            Some(enough) => Ok(chunks.insert(enough)),
            None => {
                *chunks = None;
                context.forget_bindings();
                Ok(chunks.insert(Self::new(context, robe, count)?))
            }
        }
    }

    fn new(context: &Context, robe: &Robe, capacity: u32) -> Result<Self, Error> {
        let n = u64::from(capacity);
        let starts = u64::from(capacity.min(robe.starts));
        let make = |what, bytes| context.buffer(what, bytes, wgpu::BufferUsages::empty());
        Ok(Self {
            capacity,
            keys: make("chunk_keys", n * 4)?,
            access: make("chunk_access", n * 8)?,
            sorted: SortSpace::new(context, capacity)?,
            sort: SortScratch::new(context, capacity)?,
            segment: make("segment", n * 4)?,
            starts: make("starts", starts * 4)?,
            accesses: make("accesses", n * 8)?,
            targets: make("targets", (starts + 1) * 16)?,
            scratch: make("scratch", 2 * n.div_ceil(u64::from(CHUNK)) * u64::from(robe.reach + 1) * 4)?,
        })
    }
}
