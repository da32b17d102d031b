//! A parameter-shared table on the GPU, recorded into the caller's encoder. This file has the order of forward's stages, `backward.rs` that
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
        engine::{
            bind::{Batch, GradBuffer, WeightGradient},
            bind_cache::passing,
            call::{Call, Groups, Named},
            context::Context,
        },
        front::{Front, Kind, front},
        reader::Readable,
        slices::Uploaded,
        stages::{
            BEGIN, LINEARIZE, ROBE_DECODE, ROBE_GATHER, ROBE_HASH, ROBE_WEIGHT_GRADIENT,
            cached::space::Bound,
            robe::{
                array::Array,
                robe_update,
                space::{Chunks, Due, Runs, Scattered, Space, Uniforms},
            },
        },
    },
    robe::{
        RobeCounters,
        config::{Backward, Config},
    },
    table::{
        counters::Counters,
        layout::{Layout, POOL_NONE, Params, Rate, Robe, ScalerState},
        params::Mode,
        rng::Purpose,
        step_state::Pending,
    },
    wgsl::Cut,
};

/// Tables on the GPU whose rows share an array of weights.
///
/// ```
/// use hotrow::{GradSlice, RobeGroup, adapter, prelude::*, robe};
///
/// # fn main() -> Result<(), hotrow::Error> {
/// // A program that has a device and a queue calls `Context::new`.
/// let Ok(context) = adapter::open_best(adapter::Wanted::Any) else { return Ok(()) };
/// // A million rows x 16 in 4,096 weights, read in chunks of 8.
/// let mut table = RobeGroup::new(&context, robe::Config::new(&[1_000_000], 16, 4096, 8))?;
/// let outputs = table.forward(&[999_999], &[0, 1], None)?; // `record_forward` takes an encoder of yours, as `Group`'s does
/// let robe::Gradient::Sparse { locations, .. } = table.gradient(GradSlice::F32(&outputs))? else { return Ok(()) };
/// assert_eq!(locations.len(), 16); // two chunks of 8
/// table.backward(&outputs)?;
/// assert_eq!(table.robe_counters()?.accesses, [1]);
/// # Ok(())
/// # }
/// ```
///
/// The `record_*` methods put a step into the caller's encoder and never wait. The [`Lookup`](crate::Lookup) methods upload, submit and
/// wait.
#[derive(Debug)]
pub struct RobeGroup {
    pub(crate) front: Front<Infallible>,
    pub(crate) config: Config,
    /// The configuration of the rows that the array stands for.
    pub(crate) rows: GroupConfig,
    pub(crate) layout: Layout,
    pub(crate) array: Array,
    pub(crate) train: Option<Space>,
    pub(crate) frozen: Option<Space>,
    pub(crate) chunks: Option<Chunks>,
    pub(crate) runs: Option<Runs>,
    pub(crate) scattered: Option<Scattered>,
    /// The buffers that readers bind.
    pub(crate) readable: Readable,
}

impl Drop for RobeGroup {
    fn drop(&mut self) {
        self.readable.close();
        self.front.context.forget_bindings();
    }
}

impl RobeGroup {
    /// Allocates the array and fills it.
    ///
    /// # Errors
    /// [`Error::Config`]; [`Error::TooLarge`] for more weights than fit into the windows that a stage can bind; [`Error::OutOfMemory`];
    /// [`Error::Source`] for initial values whose range has no finite scale.
    pub fn new(context: &Context, config: Config) -> Result<Self, Error> {
        config.check()?;
        let rows = config.rows();
        let layout = Layout::new(&rows, u64::MAX)?;
        context.prepare(&[Cut::ONE])?; // for the stage combine
        let array = context.guarded(|| Array::new(context, &config))?;
        let scattered = Scattered::new(context, &config)?;
        let front = Front::new(context)?;
        let (train, frozen, chunks, runs) = (None, None, None, None);
        let readable = Readable::default();
        Ok(Self { front, config, rows, layout, array, train, frozen, chunks, runs, scattered, readable })
    }

    /// As [`RobeGroup::new`], as a future. In a browser only this one knows whether the device has the memory.
    ///
    /// # Errors
    /// As [`RobeGroup::new`].
    pub async fn new_async(context: &Context, config: Config) -> Result<Self, Error> {
        let group = Self::new(context, config)?;
        context.check_async().await.map(|()| group)
    }

    /// The configuration, with the learning rate that is set now.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Number of distinct places where chunks begin from which on a batch's backward visits all weights (see [`Backward`]).
    #[must_use]
    pub fn dense_from(&self) -> u32 {
        match self.config.backward {
            Backward::Dense | Backward::Atomic => 0,
            // The units that so many starts reach would cover the array, laid side by side.
            Backward::Sparse | Backward::Auto => {
                let (reach, unit) = (self.array.robe.reach, self.array.storage.unit());
                self.config.weights / if unit == 1 { reach } else { ((reach + unit - 2) / unit + 1) * unit }
            }
        }
    }

    pub(crate) fn params(&self, mode: Mode) -> Params {
        Params::new(&self.rows, &self.layout, mode, Purpose::Update).floats()
    }
}

front!(RobeGroup, Shared);

impl Kind for RobeGroup {
    type Prefetched = Infallible;

    fn front(&self) -> &Front<Infallible> {
        &self.front
    }

    fn front_mut(&mut self) -> &mut Front<Infallible> {
        &mut self.front
    }

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
        RobeCounters::from_words(words).of_tables(&self.config)
    }

    fn set_rate(&mut self, lr: f32) -> Result<(), Error> {
        self.rows.set_learning_rate(lr)?;
        self.config.optimizer.lr = lr;
        Ok(())
    }

    fn check_batch(&self, indices: u32, bags: u32) -> Result<(), Error> {
        self.config.batch_chunks(indices, bags).map(drop)
    }

    fn record(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        batch: &Batch<'_>,
        outputs: wgpu::BufferSlice<'_>,
        mode: Mode,
    ) -> Result<u32, Error> {
        let (indices, bags) = batch.shape(&self.rows)?;
        self.check_batch(indices, bags)?;
        let params = self.params(mode).batch(indices, bags, batch.weights.is_some());
        let bound = Bound::of(&self.front.context, &self.front.dummy, batch, &params)?;
        let (outputs, rows) =
            self.front.context.bind_outputs(&self.rows, &self.front.dummy, batch, &params, outputs)?;
        let space = if mode == Mode::Train {
            self.front.state.end_forward(); // its step scratch is overwritten
            Space::grown(&mut self.train, &self.front.context, indices)?
        } else {
            Space::grown(&mut self.frozen, &self.front.context, indices)?
        };
        forward(&self.front.context, encoder, &self.array, space, &params, &self.array.robe, &bound, (&outputs, rows));
        if mode == Mode::Train {
            self.front.state.forward(Pending::new(&params, 0));
        }
        Ok(indices)
    }

    fn outcome(&self, mode: Mode) -> Option<&wgpu::Buffer> {
        let space = if mode == Mode::Train { &self.train } else { &self.frozen };
        space.as_ref().map(|space| &space.step)
    }

    fn record_backward_by(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        grad_outputs: GradBuffer<'_>,
        scaler: &wgpu::Buffer,
    ) -> Result<(), Error> {
        let context = self.front.context.clone();
        context.guarded(|| {
            let waiting = self.waiting_for("backward")?;
            let space = self.train.as_ref().filter(|_| waiting.chunks > 0);
            let rate = self.front.rate.record(&context, encoder, &Rate::new(&self.config.optimizer));
            if let (Some(space), Some(scattered)) = (space, &self.scattered) {
                scattered.record(&context, encoder, &waiting, (&self.array, space), grad_outputs, (scaler, rate))?;
            } else if let Some(space) = space {
                let due = Due::new(&context, &waiting, &mut self.chunks, grad_outputs)?;
                let call = &mut Call::begin(&context, encoder, "hotrow.robe.backward");
                due.sort(call, space, scaler);
                robe_update::record(call, &due, &self.array, rate);
            }
            self.front.state.end_forward();
            Ok(())
        })
    }

    fn record_weight_gradient_of(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        forward: Pending,
        bound: &WeightGradient<'_>,
    ) -> Result<(), Error> {
        let Pending { indices, bags, weighted, .. } = forward;
        let Some(space) = &self.train else { return Ok(()) };
        let params = self.params(Mode::Train).batch(indices, bags, weighted);
        let params = Params { half_grads: bound.half_grads, ..params };
        let call = &mut Call::begin(&self.front.context, encoder, "hotrow.robe.weight_gradient");
        let uniforms = Uniforms::new(&self.front.context, &params, &self.array.robe);
        let groups = Groups::of(params.indices, 256 / params.lanes);
        call.run_windows(&ROBE_WEIGHT_GRADIENT, &[&uniforms, bound, space, &self.array], &self.array, &groups);
        Ok(())
    }

    async fn record_waiting(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        batch: &Batch<'_>,
        outputs: wgpu::BufferSlice<'_>,
        mode: Mode,
    ) -> Result<(), Error> {
        self.record(encoder, batch, outputs, mode).map(drop)
    }

    async fn record_read_rows(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        rows: &[u32],
        outputs: &wgpu::Buffer,
    ) -> Result<(), Error> {
        let n = rows.len() as u32;
        let params = self.params(Mode::Rows).rows(n);
        let Front { context, dummy, .. } = &self.front;
        let batch = Uploaded::rows(context, rows)?;
        let bound = Bound::of(context, dummy, &batch.batch(), &params)?;
        let space = Space::grown(&mut self.frozen, context, n)?;
        forward(context, encoder, &self.array, space, &params, &self.array.robe, &bound, (&passing(outputs), n));
        Ok(())
    }
}

/// Records the stages of a forward, in order.
#[allow(clippy::too_many_arguments, reason = "the arguments are what the stages of a forward bind")]
fn forward(
    context: &Context,
    encoder: &mut wgpu::CommandEncoder,
    array: &Array,
    space: &Space,
    params: &Params,
    robe: &Robe,
    batch: &Bound<'_>,
    outputs: (&wgpu::BindingResource<'_>, u32),
) {
    encoder.clear_buffer(&space.step, 0, None);
    let call = &mut Call::begin(context, encoder, "hotrow.robe.forward");
    let uniforms = &Uniforms::new(context, params, robe);
    let from: &[&dyn Named] = &[uniforms, batch, array, space, &("outputs", outputs.0)];
    // One invocation for each index, and one for each offset.
    call.run(&LINEARIZE, from, &Groups::of(params.indices.max(params.bags + 1), 256));
    call.run(&BEGIN, from, &Groups::Direct(1));
    call.run(&ROBE_HASH, from, &Groups::of(params.indices, 256));
    let kernel = if array.storage.plain() { &ROBE_GATHER } else { &ROBE_DECODE };
    // With pooling none each share of a workgroup takes four rows.
    let per_group = 256 / params.lanes * if params.pooling == POOL_NONE { 4 } else { 1 };
    call.run_windows(kernel, from, array, &Groups::of(outputs.1, per_group));
}
