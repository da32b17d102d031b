//! Step scratch of a parameter-shared table. Its size follows the largest batch. As in `gpu/stages/cached/space.rs`, one list makes the
//! buffers and the memory plan.

use crate::{
    error::Error,
    gpu::{
        engine::{
            call::{Named, named},
            context::Context,
            scratch::{Make, grown},
        },
        stages::sort::space::{SortScratch, SortSpace},
    },
    memory::Allocation,
    robe::config::{Backward, Config},
    table::abi::{MERGE_CHUNK, Params, Robe, Step},
};

/// The uniforms of a call.
pub(crate) struct Uniforms {
    pub(crate) params: wgpu::Buffer,
    pub(crate) robe: wgpu::Buffer,
}

named!(Uniforms: params, robe);

impl Uniforms {
    pub(crate) fn new(context: &Context, params: &Params, robe: &Robe) -> Self {
        Self { params: context.uniform(params), robe: context.uniform(robe) }
    }
}

/// The lists that forward leaves for backward.
#[derive(Debug)]
pub(crate) struct Space<B = wgpu::Buffer> {
    /// Number of indices that it has room for.
    pub(crate) capacity: u32,
    pub(crate) step: B,
    pub(crate) keys: B,
    pub(crate) access: B,
    pub(crate) hashes: B,
    /// The names and bytes of all these buffers.
    pub(crate) made: Vec<Allocation>,
}

named!(Space: step, keys, access, hashes);

impl Space {
    /// The scratch in `space` if it has room for `indices` indices; else new scratch.
    pub(crate) fn grown<'s>(space: &'s mut Option<Self>, context: &Context, indices: u32) -> Result<&'s Self, Error> {
        grown(space, context, |space| space.capacity >= indices, || Self::of(&mut Make::buffers(context), indices))
    }
}

impl<B> Space<B> {
    /// Makes the buffers from the list of their names and sizes.
    pub(crate) fn of(make: &mut Make<'_, B>, indices: u32) -> Result<Self, Error> {
        let capacity = indices.max(1);
        let n = u64::from(capacity);
        Ok(Self {
            capacity,
            step: make.one("step", size_of::<Step>() as u64)?,
            keys: make.one("keys", n * 4)?,
            access: make.one("access", n * 8)?,
            hashes: make.one("hashes", n * 4)?,
            made: make.made(),
        })
    }
}

/// The chunks of a batch, for its backward.
#[derive(Debug)]
pub(crate) struct Chunks<B = wgpu::Buffer> {
    /// Number of chunks that it has room for.
    pub(crate) capacity: u32,
    pub(crate) keys: B,
    pub(crate) access: B,
    pub(crate) sorted: SortSpace<B>,
    pub(crate) sort: SortScratch<B>,
    pub(crate) segment: B,
    pub(crate) starts: B,
    /// `access` in sorted order, and the distinct starts behind a header.
    pub(crate) accesses: B,
    pub(crate) targets: B,
    /// Two partial rows for each 32 chunks.
    pub(crate) scratch: B,
    /// The names and bytes of all these buffers.
    pub(crate) made: Vec<Allocation>,
}

named!(Chunks: keys as "chunk_keys", access as "chunk_access", segment, starts, accesses, targets, scratch);

impl Chunks {
    /// The scratch in `chunks` if it has room for `count` chunks; else new scratch.
    pub(crate) fn grown<'s>(
        chunks: &'s mut Option<Self>,
        context: &Context,
        robe: &Robe,
        count: u32,
    ) -> Result<&'s Self, Error> {
        grown(chunks, context, |chunks| chunks.capacity >= count, || Self::of(&mut Make::buffers(context), robe, count))
    }
}

impl<B> Chunks<B> {
    /// Makes the buffers for `capacity` chunks from the list of their names and sizes.
    pub(crate) fn of(make: &mut Make<'_, B>, robe: &Robe, capacity: u32) -> Result<Self, Error> {
        let n = u64::from(capacity);
        let starts = u64::from(capacity.min(robe.starts));
        Ok(Self {
            capacity,
            keys: make.one("chunk_keys", n * 4)?,
            access: make.one("chunk_access", n * 8)?,
            sorted: SortSpace::of(make, capacity)?,
            sort: SortScratch::of(make, capacity)?,
            segment: make.one("segment", n * 4)?,
            starts: make.one("starts", starts * 4)?,
            accesses: make.one("accesses", n * 8)?,
            targets: make.one("targets", (starts + 1) * 16)?,
            scratch: make.one("scratch", 2 * n.div_ceil(u64::from(MERGE_CHUNK)) * u64::from(robe.reach + 1) * 4)?,
            made: make.made(),
        })
    }
}

/// The sorted chunks of a batch, as the last stage of a backward reads them.
pub(crate) struct GradientSums<'a> {
    pub(crate) uniforms: Uniforms,
    pub(crate) params: Params,
    pub(crate) robe: Robe,
    pub(crate) scratch: &'a Chunks,
    /// Number of chunks.
    pub(crate) chunks: u32,
    pub(crate) grad_outputs: wgpu::BindingResource<'a>,
}

impl Named for GradientSums<'_> {
    fn named(&self, name: &str) -> Option<wgpu::BindingResource<'_>> {
        let own = || (name == "grad_outputs").then(|| self.grad_outputs.clone());
        own().or_else(|| self.uniforms.named(name)).or_else(|| self.scratch.named(name))
    }
}

impl GradientSums<'_> {
    /// Most distinct starts.
    pub(crate) fn starts(&self) -> u32 {
        self.chunks.min(self.robe.starts)
    }
}

/// The sums to which gradients are added; all are 0 between steps.
#[derive(Debug)]
pub(crate) struct Scattered<B = wgpu::Buffer> {
    /// One sum for each weight.
    pub(crate) sums: B,
    /// One bit for each weight if covered weights move without a gradient: 1 if a chunk covers it.
    pub(crate) covered: B,
    /// The names and bytes of all these buffers.
    pub(crate) made: Vec<Allocation>,
}

named!(Scattered: sums, covered);

impl<B> Scattered<B> {
    /// Makes the buffers from the list of their names and sizes.
    pub(crate) fn of(make: &mut Make<'_, B>, config: &Config) -> Result<Self, Error> {
        let marks = if config.marks() { config.weights.div_ceil(32) } else { 0 };
        let sums = make.one("sums", 4 * u64::from(config.weights))?;
        let covered = make.one("covered", 4 * u64::from(marks))?;
        Ok(Self { sums, covered, made: make.made() })
    }
}

impl Scattered {
    /// The sums of a group whose backward is atomic; `None` for any other.
    pub(crate) fn new(context: &Context, config: &Config) -> Result<Option<Self>, Error> {
        if config.backward != Backward::Atomic {
            return Ok(None);
        }
        let (wanted, limit) = (4 * u64::from(config.weights), context.caps().choose_piece_bytes());
        if wanted > limit {
            let remedy = "compress more, or take Backward::Sparse: Backward::Atomic's sums are one binding";
            return Err(Error::TooLarge { what: "sums", wanted, limit, remedy });
        }
        Self::of(&mut Make::buffers(context), config).map(Some)
    }
}
