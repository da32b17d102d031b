//! A parameter-shared table on the GPU, encoded into the caller's encoder. This file has the order of forward's stages, `backward.rs` that
//! of backward's.

pub(crate) mod backward;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod blocking;
pub(crate) mod gradient;
pub(crate) mod reader;
pub(crate) mod scattered;

use std::convert::Infallible;

use crate::{
    config::GroupConfig,
    error::Error,
    gpu::{
        device::{DeviceGroup, Kind},
        engine::{
            bind::{Batch, FloatBuffer, WeightGradient},
            bind_cache::passing,
            call::{Call, Groups, Named},
            context::Context,
            numbers::{CONTINUED, WHOLE},
        },
        reader::ReadableBuffers,
        stages::{
            COMBINE, LINEARIZE, ROBE_DECODE, ROBE_GATHER, ROBE_HASH, ROBE_WEIGHT_GRADIENT,
            cached::space::Bound,
            robe::{
                array::Array,
                robe_update,
                space::{Chunks, GradientSums, Scattered, Space, Uniforms},
            },
        },
        upload::Uploaded,
    },
    lookup::SharedArray,
    memory::MemoryReport,
    robe::{
        config::{Backward, Config},
        counters_of,
    },
    table::{
        abi::{POOL_NONE, Params, Rate},
        counters::Counters,
        layout::Layout,
        params::Mode,
        rng::Purpose,
        step_state::Pending,
    },
    wgsl::Sizes,
};

/// Tables on the GPU whose rows share an array of weights.
///
/// ```
/// use hotrow::{Bags, GradSlice, Mode, SharedGroup, adapter, prelude::*, robe};
///
/// # fn main() -> Result<(), hotrow::Error> {
/// // A program that has a device and a queue calls `Context::new`.
/// let Ok(context) = adapter::open_best() else { return Ok(()) };
/// // A million rows x 16 in 4,096 weights, read in chunks of 8.
/// let mut table = SharedGroup::new(&context, robe::Config::new(&[1_000_000], 16, 4096, 8))?;
/// let outputs = table.forward(Bags::new(&[999_999], &[0, 1]), Mode::Train)?; // `encode_forward` takes an encoder of yours, as `Group`'s does
/// assert_eq!(table.gradient(GradSlice::F32(&outputs))?.len(), 4096); // a value for each weight
/// table.backward(&outputs)?;
/// assert_eq!(table.counters()?[0].accesses, 1);
/// # Ok(())
/// # }
/// ```
///
/// The `encode_*` methods put a step into the caller's encoder and never wait. The [`Lookup`](crate::Lookup) methods upload, submit and
/// wait.
pub type SharedGroup = DeviceGroup<Shared>;

/// The array of a [`SharedGroup`], and the scratch of its steps.
#[derive(Debug)]
pub struct Shared {
    pub(crate) config: Config,
    /// The configuration of the rows that the array stands for.
    pub(crate) rows: GroupConfig,
    pub(crate) layout: Layout,
    pub(crate) array: Array,
    pub(crate) train: Option<Space>,
    pub(crate) frozen: Option<Space>,
    pub(crate) chunks: Option<Chunks>,
    pub(crate) scattered: Option<Scattered>,
}

impl SharedGroup {
    /// Allocates the array and fills it.
    ///
    /// # Errors
    /// [`Error::Config`]; [`Error::TooLarge`] for more weights than fit into the windows that a stage can bind; [`Error::OutOfMemory`];
    /// [`Error::Source`] for initial values whose range has no finite scale.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn new(context: &Context, config: Config) -> Result<Self, Error> {
        config.check()?;
        let rows = config.rows();
        let layout = Layout::new(&rows, u64::MAX)?;
        context.prepare(&[&COMBINE], &[Sizes::ONE])?;
        let array = context.guarded(|| Array::new(context, &config))?;
        let scattered = Scattered::new(context, &config)?;
        let (train, frozen, chunks) = (None, None, None);
        Self::with_kind(context, Shared { config, rows, layout, array, train, frozen, chunks, scattered })
    }

    /// As [`SharedGroup::new`], as a future. In a browser only this one knows whether the device has the memory.
    ///
    /// # Errors
    /// As [`SharedGroup::new`].
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub async fn new_async(context: &Context, config: Config) -> Result<Self, Error> {
        let group = Self::new(context, config)?;
        context.check_async().await.map(|()| group)
    }

    /// The configuration, with the learning rate that is set now.
    #[cfg(target_family = "wasm")]
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.kind.config
    }

    /// Number of distinct places where chunks begin from which on a batch's backward visits all weights (see [`Backward`]).
    #[doc(hidden)]
    #[must_use]
    pub fn dense_from(&self) -> u32 {
        match self.kind.config.backward {
            Backward::Dense | Backward::Atomic => 0,
            // The weights that so many starts reach would cover the array, laid side by side.
            Backward::Sparse | Backward::Auto => {
                let (reach, together) = (self.kind.array.robe.reach, self.kind.array.storage.neighbours());
                self.kind.config.weights
                    / if together == 1 { reach } else { ((reach + together - 2) / together + 1) * together }
            }
        }
    }
}

impl Shared {
    pub(crate) fn params(&self, mode: Mode) -> Params {
        Params::new(&self.rows, &self.layout, mode, Purpose::Update).floats()
    }
}

impl Kind for Shared {
    type Prefetched = Infallible;

    fn rows(&self) -> &GroupConfig {
        &self.rows
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn tables(&self) -> &wgpu::Buffer {
        &self.array.tables
    }

    fn counted(&self, words: &[u32]) -> Vec<Counters> {
        counters_of(&self.config, words)
    }

    fn set_rate(&mut self, lr: f32) -> Result<(), Error> {
        self.rows.set_learning_rate(lr)?;
        self.config.optimizer.lr = lr;
        Ok(())
    }

    fn check_batch(&self, indices: u32, bags: u32) -> Result<(), Error> {
        self.config.batch_chunks(indices, bags).map(drop)
    }

    fn outcome(group: &SharedGroup, mode: Mode) -> Option<&wgpu::Buffer> {
        let space = if mode == Mode::Train { &group.kind.train } else { &group.kind.frozen };
        space.as_ref().map(|space| &space.step)
    }

    fn readable(&self, context: &Context) -> ReadableBuffers {
        self.readable_buffers(context)
    }

    fn encode(
        group: &mut SharedGroup,
        encoder: &mut wgpu::CommandEncoder,
        batch: &Batch<'_>,
        outputs: wgpu::BufferSlice<'_>,
        mode: Mode,
    ) -> Result<u32, Error> {
        let DeviceGroup { context, state, dummy, numbers, kind, .. } = group;
        let (indices, bags) = batch.shape(&kind.rows)?;
        kind.check_batch(indices, bags)?;
        let params = kind.params(mode).batch(indices, bags, batch.weights.is_some());
        let bound = Bound::of(context, dummy, batch, &params)?;
        let (outputs, rows) = context.bind_outputs(&kind.rows, dummy, batch, &params, outputs)?;
        let space = if mode == Mode::Train {
            state.end_forward(); // its step scratch is overwritten
            Space::grown(&mut kind.train, context, indices)?
        } else {
            Space::grown(&mut kind.frozen, context, indices)?
        };
        forward(context, encoder, &kind.array, space, &params, &bound, (&outputs, rows));
        if mode == Mode::Train {
            let number = numbers.next();
            numbers.encode(context, encoder, (&space.step, WHOLE), number);
            state.forward(Pending { number, ..Pending::new(&params, 0, &kind.rows) });
        }
        Ok(indices)
    }

    fn encode_backward(
        group: &mut SharedGroup,
        encoder: &mut wgpu::CommandEncoder,
        grad_outputs: FloatBuffer<'_>,
        scaler: &wgpu::Buffer,
    ) -> Result<(), Error> {
        let context = group.context.clone();
        context.guarded(|| {
            let waiting = group.waiting_for("backward")?;
            let DeviceGroup { state, rate, numbers, kind, .. } = group;
            let space = kind.train.as_ref().filter(|_| waiting.indices > 0);
            if let Some(space) = space {
                numbers.encode(&context, encoder, (&space.step, CONTINUED), waiting.number);
            }
            let rate = rate.encode(&context, encoder, &Rate::new(&kind.config.optimizer));
            if let (Some(space), Some(scattered)) = (space, &kind.scattered) {
                scattered.encode(&context, encoder, &waiting, (&kind.array, space), grad_outputs, (scaler, rate))?;
            } else if let Some(space) = space {
                let gradients = GradientSums::new(&context, &waiting, &mut kind.chunks, grad_outputs)?;
                let call = &mut Call::begin(&context, encoder, "hotrow.robe.backward");
                gradients.sort(call, space, scaler);
                robe_update::encode(call, &gradients, &kind.array, rate);
            }
            state.end_forward();
            Ok(())
        })
    }

    fn encode_weight_gradient(
        group: &mut SharedGroup,
        encoder: &mut wgpu::CommandEncoder,
        bound: &WeightGradient<'_>,
    ) -> Result<(), Error> {
        let Pending { indices, bags, weighted, number, .. } = group.state.wants_forward("weight_gradient")?;
        let DeviceGroup { context, numbers, kind, .. } = group;
        let Some(space) = &kind.train else { return Ok(()) };
        numbers.encode(context, encoder, (&space.step, CONTINUED), number);
        let params = kind.params(Mode::Train).batch(indices, bags, weighted);
        let params = Params { half_grads: bound.half_grads, ..params };
        let call = &mut Call::begin(context, encoder, "hotrow.robe.weight_gradient");
        let uniforms = Uniforms::new(context, &params, &kind.array.robe);
        let groups = Groups::of(params.indices, 256 / params.lanes);
        let from: &[&dyn Named] = &[&uniforms, bound, space, &kind.array];
        call.run_windows(&ROBE_WEIGHT_GRADIENT, from, &kind.array, &groups);
        Ok(())
    }

    async fn encode_waiting(
        group: &mut SharedGroup,
        encoder: &mut wgpu::CommandEncoder,
        batch: &Batch<'_>,
        outputs: wgpu::BufferSlice<'_>,
        mode: Mode,
    ) -> Result<(), Error> {
        Self::encode(group, encoder, batch, outputs, mode).map(drop)
    }

    async fn encode_read_rows(
        group: &mut SharedGroup,
        encoder: &mut wgpu::CommandEncoder,
        rows: &[u32],
        outputs: &wgpu::Buffer,
    ) -> Result<(), Error> {
        let n = rows.len() as u32;
        let DeviceGroup { context, dummy, kind, .. } = group;
        let params = kind.params(Mode::Frozen).rows(n);
        let batch = Uploaded::rows(context, rows)?;
        let bound = Bound::of(context, dummy, &batch.batch(), &params)?;
        let space = Space::grown(&mut kind.frozen, context, n)?;
        forward(context, encoder, &kind.array, space, &params, &bound, (&passing(outputs), n));
        Ok(())
    }

    fn memory(group: &SharedGroup) -> MemoryReport {
        group.allocated()
    }

    #[cfg(not(target_family = "wasm"))]
    fn as_shared_array(group: &mut SharedGroup) -> Option<&mut dyn SharedArray> {
        Some(group)
    }
}

/// Encodes the stages of a forward, in order.
fn forward(
    context: &Context,
    encoder: &mut wgpu::CommandEncoder,
    array: &Array,
    space: &Space,
    params: &Params,
    batch: &Bound<'_>,
    outputs: (&wgpu::BindingResource<'_>, u32),
) {
    encoder.clear_buffer(&space.step, 0, None);
    let call = &mut Call::begin(context, encoder, "hotrow.robe.forward");
    let uniforms = &Uniforms::new(context, params, &array.robe);
    let from: &[&dyn Named] = &[uniforms, batch, array, space, &("outputs", outputs.0), &("row_digits", &space.hashes)];
    // One invocation for each index, and one for each offset.
    call.run(&LINEARIZE, from, &Groups::of(params.indices.max(params.bags + 1), 256));
    call.run(&ROBE_HASH, from, &Groups::of(params.indices, 256));
    let kernel = if array.storage.plain() { &ROBE_GATHER } else { &ROBE_DECODE };
    // With pooling none each share of a workgroup takes four rows.
    let per_group = 256 / params.lanes * if params.pooling == POOL_NONE { 4 } else { 1 };
    call.run_windows(kernel, from, array, &Groups::of(outputs.1, per_group));
}
