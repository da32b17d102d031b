//! A parameter-shared table on the GPU, recorded into the caller's encoder. This file knows the order of forward's stages, `backward.rs`
//! that of backward's.

pub(crate) mod backward;
pub(crate) mod blocking;
pub(crate) mod gradient;
pub(crate) mod scattered;

use crate::{
    config::GroupConfig,
    error::Error,
    gpu::seen::Seen,
    gpu::{
        engine::{bind::Batch, call::Call, changing::Changing, context::Context, readback::Reports},
        stages::{
            cached::{begin, linearize, space::Bound},
            robe::{
                array::Array,
                robe_decode, robe_gather, robe_hash,
                space::{Chunks, Runs, Scattered, Space, Uniforms},
            },
        },
    },
    robe::config::{Backward, Config},
    table::{
        batch::Pending,
        layout::{Layout, Params, Rate, Robe},
        params::Mode,
        rng::Purpose,
    },
};

/// Tables whose rows share an array of weights on the GPU.
///
/// `record_*` put a step into the caller's encoder and never wait. The [`Lookup`](crate::Lookup) methods upload, submit and wait.
#[derive(Debug)]
pub struct RobeGroup {
    pub(crate) context: Context,
    pub(crate) config: Config,
    /// The rows as if they were there.
    pub(crate) rows: GroupConfig,
    pub(crate) layout: Layout,
    pub(crate) array: Array,
    pub(crate) train: Option<Space>,
    pub(crate) frozen: Option<Space>,
    pub(crate) chunks: Option<Chunks>,
    pub(crate) runs: Option<Runs>,
    pub(crate) scattered: Option<Scattered>,
    /// The uniform of the optimiser's rate.
    pub(crate) rate: Changing,
    /// A small buffer, bound where a batch has no weights or no indices.
    pub(crate) dummy: wgpu::Buffer,
    /// A forward whose backward has not come.
    pub(crate) pending: Option<Pending>,
    pub(crate) reports: Reports,
    pub(crate) seen: Seen,
}

impl Drop for RobeGroup {
    fn drop(&mut self) {
        self.context.forget_bindings();
    }
}

impl RobeGroup {
    /// Allocates the array and fills it.
    ///
    /// # Errors
    /// [`Error::Config`]; [`Error::TooLarge`] for more weights than the windows that a stage may bind; [`Error::OutOfMemory`];
    /// [`Error::Source`] for initial values whose range no scale can be.
    pub fn new(context: &Context, config: Config) -> Result<Self, Error> {
        config.check()?;
        let rows = config.rows();
        let layout = Layout::new(&rows, u64::MAX)?;
        context.prepare(1, 1)?; // combine
        let array = context.guarded(|| Array::new(context, &config))?;
        let scattered = Scattered::new(context, &config)?;
        let dummy = context.buffer("dummy", 16, wgpu::BufferUsages::empty())?;
        let reports = Reports::new(context);
        let rate = Changing::new::<Rate>(context);
        let context = context.clone();
        let (train, frozen, chunks, runs, pending) = (None, None, None, None, None);
        Ok(Self {
            context,
            config,
            rows,
            layout,
            array,
            train,
            frozen,
            chunks,
            runs,
            scattered,
            rate,
            dummy,
            pending,
            reports,
            seen: Seen::default(),
        })
    }

    /// The configuration; the learning rate is the newest.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The context the group lives in.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Distinct places where a batch's chunks begin, from which its backward goes over all weights: as [`Backward`] says.
    #[must_use]
    pub fn dense_from(&self) -> u32 {
        match self.config.backward {
            Backward::Dense | Backward::Atomic => 0,
            // As many as would cover the array, laid side by side.
            Backward::Sparse | Backward::Auto => self.config.weights / self.array.robe.reach,
        }
    }

    /// Gives up the backward of the last forward.
    pub fn abandon_backward(&mut self) {
        self.pending = None;
    }

    /// Returns the error of an earlier skipped step, once its report has arrived: the device skips a step with a bad index or offset.
    /// Each error is returned once. Every `record_forward` calls this before it records.
    ///
    /// # Errors
    /// [`Error::IndexOutOfRange`] or [`Error::BadOffsets`] of the earliest such step not returned yet.
    pub fn check(&mut self) -> Result<(), Error> {
        self.reports.check(&self.context, &self.rows)
    }

    /// Records one step forward. `outputs` gets `[bags, dim]` floats, or `[indices, dim]` with pooling none; it lies in a buffer of
    /// its own. What is recorded must be submitted, in the order of the calls.
    ///
    /// # Errors
    /// Shapes, buffers and sizes that cannot be; and a fault of an earlier step ([`RobeGroup::check`]), in which case nothing is recorded.
    pub fn record_forward(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        batch: &Batch<'_>,
        outputs: wgpu::BufferSlice<'_>,
    ) -> Result<(), Error> {
        self.record_and_report(encoder, batch, outputs, Mode::Train)
    }

    /// Records a forward that changes nothing. A forward waiting for its backward goes on waiting.
    ///
    /// # Errors
    /// As [`RobeGroup::record_forward`].
    pub fn record_forward_frozen(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        batch: &Batch<'_>,
        outputs: wgpu::BufferSlice<'_>,
    ) -> Result<(), Error> {
        self.record_and_report(encoder, batch, outputs, Mode::Frozen)
    }

    pub(crate) fn record_and_report(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        batch: &Batch<'_>,
        outputs: wgpu::BufferSlice<'_>,
        mode: Mode,
    ) -> Result<(), Error> {
        let context = self.context.clone();
        context.guarded(|| {
            self.check()?;
            let indices = self.record(encoder, batch, outputs, mode)?;
            if let Some(space) = self.space(mode) {
                self.reports.record(&self.context, encoder, &space.step, indices);
            }
            Ok(())
        })
    }

    pub(crate) fn space(&self, mode: Mode) -> Option<&Space> {
        if mode == Mode::Train { self.train.as_ref() } else { self.frozen.as_ref() }
    }

    pub(crate) fn params(&self, mode: Mode) -> Params {
        Params::new(&self.rows, &self.layout, mode, Purpose::Update).floats()
    }

    /// Records a forward and returns its number of indices.
    pub(crate) fn record(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        batch: &Batch<'_>,
        outputs: wgpu::BufferSlice<'_>,
        mode: Mode,
    ) -> Result<u32, Error> {
        let (indices, bags) = batch.shape(&self.rows)?;
        self.config.batch_chunks(indices, bags)?;
        let weighted = batch.weights.is_some();
        let params = self.params(mode).batch(indices, bags, weighted);
        let bound = Bound::of(&self.context, &self.dummy, batch, &params)?;
        let (outputs, rows) = self.context.bind_outputs(&self.rows, &self.dummy, batch, &params, outputs)?;
        let space = if mode == Mode::Train {
            self.pending = None; // what its backward would need goes
            Space::grown(&mut self.train, &self.context, indices)?
        } else {
            Space::grown(&mut self.frozen, &self.context, indices)?
        };
        forward(&self.context, encoder, &self.array, space, &params, &self.array.robe, &bound, (&outputs, rows));
        if mode == Mode::Train {
            self.pending = Some(Pending { indices, bags, weighted });
        }
        Ok(indices)
    }
}

/// Forward, stage by stage.
#[allow(clippy::too_many_arguments, reason = "what a step binds")]
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
    let Space { step, keys, access, .. } = space;
    linearize::record(call, params, &uniforms.params, batch, array.numbering(), [step, keys, access]);
    begin::record(call, &uniforms.params, batch, array.numbering(), step);
    robe_hash::record(call, uniforms, array, space, params.indices);
    let kernel = if array.storage.plain() { &robe_gather::KERNEL } else { &robe_decode::KERNEL };
    robe_gather::record(call, kernel, (params, uniforms), batch, array, space, outputs);
}
