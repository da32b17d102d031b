//! Items beyond the public interface for the crate's own tests, benchmarks and command. None of it is stable.

#[cfg(test)]
mod allocations;
mod harness;
mod pieces;

use crate::{
    config::GroupConfig,
    error::Error,
    gpu::{
        cached::group::Group,
        engine::{bind_cache::Held, context::Context, options::ContextOptions},
        stages::KERNELS,
    },
    host::locked,
    table::{params::Mode, rng::Purpose},
    wgsl::{Bodies, ComposedShader, Kernel},
};
pub use crate::{
    gpu::engine::capture::Dispatch,
    host::alloc::fault,
    memory::memory_factor,
    record::{codec, rows},
    rules::correction,
    store::ram::RamStore,
    table::{admission, batch::check_offsets, hash, layout::Layout, pins::seats, rng, row::RowLayout},
    wgsl::{AddBody, LookupBody, RankBody},
};
pub use harness::Deduped;
pub use pieces::Pieces;

/// The shape in the first bytes of a file of numpy's, if these bytes have the whole header and it describes an array of numbers.
#[cfg(all(feature = "npy", any(unix, windows)))]
#[must_use]
pub fn npy_shape(start: &[u8]) -> Option<Vec<u64>> {
    crate::source::plain_shape(start)
}

/// Headers of safetensors files.
#[cfg(feature = "checkpoint")]
pub mod safetensors {
    pub use crate::checkpoint::safetensors::{Names, check_length, header, read};
}

/// Structs and constants that host and shaders share.
pub mod layout {
    pub use crate::{
        config::{MOST_WAYS, PolicyFacts, WAYS, WINDOW_WAYS},
        table::{abi::*, layout::*, row::*},
    };
}

/// The kernels, described and composed.
pub mod shader {
    pub use crate::wgsl::{
        reader::{ReaderKind, ReaderText, WantedList, modules as reader_modules},
        *,
    };
}

/// CPU mirrors of stages that tests call by themselves.
pub mod stages {
    pub use crate::{
        cpu::stages::{
            grid::{grid::grid, grid_gradient::grid_gradient},
            robe::robe_blocks::robe_blocks,
        },
        robe::storage::Storage,
    };
}

/// The parameters of a call as a group makes them, with a mode and a purpose by their numbers in shaders.
#[must_use]
pub fn params(config: &GroupConfig, layout: &Layout, mode: u32, purpose: u32) -> layout::Params {
    layout::Params { mode, purpose, ..layout::Params::new(config, layout, Mode::Train, Purpose::WriteBack) }
}

/// Every kernel.
#[must_use]
pub fn kernels() -> &'static [&'static Kernel] {
    KERNELS
}

/// Every kernel in every variant.
#[must_use]
pub fn sources() -> Vec<ComposedShader> {
    crate::wgsl::sources(KERNELS, shader::SumBody::Plain)
}

/// As [`sources`], with the sums of DX12.
#[must_use]
pub fn sources_of_dx12() -> Vec<ComposedShader> {
    crate::wgsl::sources(KERNELS, shader::SumBody::Settled)
}

/// Creates a context whose shader texts come from the caller: a test emulates bodies that the device cannot run.
///
/// # Errors
/// As [`Context::new`].
pub fn context_with_texts(
    device: &wgpu::Device,
    queue: &wgpu::Queue,
    max_groups: u32,
    text: impl Fn(&Kernel, Bodies) -> String + Send + Sync + 'static,
) -> Result<Context, Error> {
    Context::with_texts(device, queue, KERNELS, max_groups, text)
}

/// The numbers of uniforms and bind groups that a context's cache holds and has made.
#[must_use]
pub fn held_bindings(context: &Context) -> Held {
    context.held_bindings()
}

/// The number of buffers, bind groups and pipelines that a context has made.
#[must_use]
pub fn objects_made(context: &Context) -> u64 {
    context.objects_made()
}

/// The numbers of submissions and waits of a context.
#[must_use]
pub fn moments(context: &Context) -> [u64; 2] {
    context.moments().counts()
}

/// The number of pipelines that a context has built.
#[must_use]
pub fn pipelines_built(context: &Context) -> usize {
    context.pipelines_built()
}

/// A cache of pipelines on `device`, with what `earlier` knows.
#[must_use]
pub fn pipeline_cache(device: &wgpu::Device, earlier: Option<&wgpu::PipelineCache>) -> wgpu::PipelineCache {
    crate::host::trusted::pipeline_cache(device, earlier)
}

/// A context that loses its device before its `moment`-th submission or map, counted from 1, and builds each pipeline at its first use.
///
/// # Errors
/// As [`Context::new`].
pub fn context_to_lose(device: &wgpu::Device, queue: &wgpu::Queue, moment: u64) -> Result<Context, Error> {
    let context = Context::with_kernels(device, queue, &[], &ContextOptions::default())?;
    context.moments().end_at(moment);
    Ok(context)
}

/// The same context. It keeps what groups made with it dispatch, each in a pass of its own, for [`captured`].
#[must_use]
pub fn capturing(context: &Context) -> Context {
    let mut context = context.clone();
    context.capture = Some(<_>::default());
    context
}

/// What a context of [`capturing`] has kept since the last call. The commands must have been submitted.
///
/// # Errors
/// [`Error::Device`].
pub fn captured(context: &Context) -> Result<Vec<Dispatch>, Error> {
    let kept = context.capture.as_ref().map(|capture| std::mem::take(&mut *locked(capture)));
    let read = |(mut dispatch, copies): (Dispatch, Vec<_>)| {
        let each = |found: &[u8]| dispatch.words.push(bytemuck::pod_collect_to_vec(found));
        context.block_on(context.read_async(context.new_encoder(), &copies, each)).map(|()| dispatch)
    };
    kept.into_iter().flatten().map(read).collect()
}

/// The packed table of a group, a buffer for each piece; empty for a staged table. Rows that are in the cache may be newer there.
#[must_use]
pub fn records(group: &Group) -> &[wgpu::Buffer] {
    &group.kind.tables.records
}

/// The device calls that a group uses, for the baselines that the command measures.
pub trait Device {
    /// Does `work`, and returns errors of wgpu as its error.
    ///
    /// # Errors
    /// The errors of `work`; [`Error::Device`].
    fn guarded<T>(&self, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error>;

    /// Creates a storage buffer of `bytes` bytes.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::OutOfMemory`], [`Error::Device`].
    fn buffer(&self, what: &'static str, bytes: u64, usage: wgpu::BufferUsages) -> Result<wgpu::Buffer, Error>;

    /// Submits an encoder and waits for it.
    ///
    /// # Errors
    /// [`Error::Device`].
    fn finish(&self, encoder: wgpu::CommandEncoder) -> Result<(), Error>;

    /// Submits an encoder, waits, and returns the first bytes of each buffer as words.
    ///
    /// # Errors
    /// [`Error::Device`], [`Error::OutOfMemory`].
    fn download(&self, encoder: wgpu::CommandEncoder, sources: &[(&wgpu::Buffer, u64)])
    -> Result<Vec<Vec<u32>>, Error>;

    /// Most workgroups of a dispatch.
    fn max_groups(&self) -> u32;
}

impl Device for Context {
    fn guarded<T>(&self, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        self.guarded(work)
    }

    fn buffer(&self, what: &'static str, bytes: u64, usage: wgpu::BufferUsages) -> Result<wgpu::Buffer, Error> {
        self.buffer(what, bytes, usage)
    }

    fn finish(&self, encoder: wgpu::CommandEncoder) -> Result<(), Error> {
        self.finish(encoder)
    }

    fn download(
        &self,
        encoder: wgpu::CommandEncoder,
        sources: &[(&wgpu::Buffer, u64)],
    ) -> Result<Vec<Vec<u32>>, Error> {
        self.download(encoder, sources)
    }

    fn max_groups(&self) -> u32 {
        self.max_groups()
    }
}
