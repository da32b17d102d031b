//! A parameter-shared table on the GPU, recorded into the caller's encoder. The one place that knows the order of its stages.

mod array;
mod blocking;
mod memory;
mod space;

pub(crate) use array::Array;
pub(crate) use space::{Chunks, Space, Uniforms};

use super::{
    Batch, Context, GradBuffer, Scaler, arrange, begin, call::Call, combine, dedup, dedup::DedupTo, linearize, merge,
    readback::Reports, robe_gather, robe_hash, robe_keys, robe_merge, robe_update, sort::SortJob, space::Bound,
};
use crate::{
    Error, GroupConfig, Layout, ScalerState,
    batch::{self, Pending},
    layout::{Params, Robe, Step, count},
    params::Mode,
    rng::Purpose,
    robe::Config,
};

/// Tables whose rows share an array of weights on the GPU.
///
/// `record_*` put a step into the caller's encoder and never wait. The [`Lookup`](crate::lookup::Lookup) methods upload, submit and wait.
#[derive(Debug)]
pub struct Group {
    context: Context,
    config: Config,
    /// The rows as if they were there.
    rows: GroupConfig,
    layout: Layout,
    array: Array,
    train: Option<Space>,
    frozen: Option<Space>,
    chunks: Option<Chunks>,
    /// Stands where a batch has no weights or no indices.
    nothing: wgpu::Buffer,
    /// A forward whose backward has not come.
    pending: Option<Pending>,
    reports: Reports,
}

impl Drop for Group {
    fn drop(&mut self) {
        self.context.forget_bindings();
    }
}

impl Group {
    /// Allocates the array and fills it.
    ///
    /// # Errors
    /// [`Error::Config`]; [`Error::TooLarge`] for more weights than one binding takes; [`Error::OutOfMemory`].
    pub fn new(context: &Context, config: Config) -> Result<Self, Error> {
        config.check()?;
        let rows = config.rows();
        let layout = Layout::new(&rows, u64::MAX)?;
        context.prepare(1, 1)?; // combine
        let array = context.guarded(|| Array::new(context, &config))?;
        let nothing = context.buffer("nothing", 16, wgpu::BufferUsages::empty())?;
        let reports = Reports::new(context);
        let context = context.clone();
        let (train, frozen, chunks, pending) = (None, None, None, None);
        Ok(Self { context, config, rows, layout, array, train, frozen, chunks, nothing, pending, reports })
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

    /// Gives up the backward of the last forward.
    pub fn abandon_backward(&mut self) {
        self.pending = None;
    }

    /// Tells of a step that was left out because of a bad index or offset, if the device has said so by now. Each is told once;
    /// every `record_forward` asks too, before it records.
    ///
    /// # Errors
    /// [`Error::IndexOutOfRange`] or [`Error::BadOffsets`] of the first such step not told yet.
    pub fn check(&mut self) -> Result<(), Error> {
        let poll = self.context.device().poll(wgpu::PollType::Poll);
        poll.map_err(|error| Error::Device { reason: error.to_string() })?;
        let told = self.reports.take();
        told.and_then(|(step, indices)| batch::fault(&self.rows, &step, indices)).map_or(Ok(()), Err)
    }

    /// Records one step forward. `outputs` gets `[bags, dim]` floats, or `[indices, dim]` with pooling none; it lies in a buffer of
    /// its own. What is recorded must be submitted, in the order of the calls.
    ///
    /// # Errors
    /// Shapes, buffers and sizes that cannot be; and a fault of an earlier step ([`Group::check`]), in which case nothing is recorded.
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
    /// As [`Group::record_forward`].
    pub fn record_forward_frozen(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        batch: &Batch<'_>,
        outputs: wgpu::BufferSlice<'_>,
    ) -> Result<(), Error> {
        self.record_and_report(encoder, batch, outputs, Mode::Frozen)
    }

    fn record_and_report(
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
                let report = self.reports.record(&self.context, encoder, indices);
                encoder.copy_buffer_to_buffer(&space.step, 0, &report, 0, size_of::<Step>() as u64);
            }
            Ok(())
        })
    }

    fn space(&self, mode: Mode) -> Option<&Space> {
        if mode == Mode::Train { self.train.as_ref() } else { self.frozen.as_ref() }
    }

    fn params(&self, mode: Mode) -> Params {
        Params::new(&self.rows, &self.layout, mode, Purpose::Update).floats()
    }

    /// Records a forward and returns its number of indices.
    fn record(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        batch: &Batch<'_>,
        outputs: wgpu::BufferSlice<'_>,
        mode: Mode,
    ) -> Result<u32, Error> {
        let indices = batch.indices.map_or(0, |slice| slice.size() / 4);
        let offsets = batch.offsets.size() / 4;
        if offsets == 0 {
            return Err(Error::Length { what: "offsets", wanted: 1, found: 0 });
        }
        let bags = offsets - 1;
        batch::check_shape(&self.rows, indices, bags, batch.weights.map(|slice| slice.size() / 4))?;
        let (indices, bags, weighted) = (indices as u32, bags as u32, batch.weights.is_some());
        self.config.batch_chunks(indices, bags)?;
        let inputs = [("indices", batch.indices), ("offsets", Some(batch.offsets)), ("weights", batch.weights)];
        for (what, slice) in inputs {
            if slice.is_some_and(|slice| slice.buffer() == outputs.buffer()) {
                let found = format!("that of the {what}");
                return Err(Error::Buffer { what: "outputs", wanted: "a buffer of its own".into(), found });
            }
        }
        let params = self.params(mode).batch(indices, bags, weighted);
        let bound = Bound::of(&self.context, &self.nothing, batch, &params)?;
        let rows = batch::output_rows(&self.rows, indices, bags);
        let wanted = u64::from(rows) * u64::from(self.config.dim) * 4;
        let outputs = match wanted {
            0 => self.nothing.as_entire_binding(),
            _ => self.context.bind("outputs", outputs, wanted)?,
        };
        let space = if mode == Mode::Train {
            self.pending = None; // what its backward would need goes
            Space::grown(&mut self.train, &self.context, indices)?
        } else {
            Space::grown(&mut self.frozen, &self.context, indices)?
        };
        forward(&self.context, encoder, &self.array, space, &params, &self.config.robe(), &bound, (&outputs, rows));
        if mode == Mode::Train {
            self.pending = Some(Pending { indices, bags, weighted });
        }
        Ok(indices)
    }

    /// Records the backward of the last forward; `grad_outputs` holds as many floats as its outputs did.
    ///
    /// # Errors
    /// [`Error::Order`] without a forward before it, [`Error::Buffer`] for gradients that cannot be bound, [`Error::TooLarge`],
    /// [`Error::OutOfMemory`].
    pub fn record_backward(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        grad_outputs: wgpu::BufferSlice<'_>,
    ) -> Result<(), Error> {
        let unscaled = self.context.uniform(&ScalerState::unscaled());
        self.record_backward_by(encoder, GradBuffer::F32(grad_outputs), &unscaled)
    }

    /// As [`record_backward`](Self::record_backward), of gradients of a loss that was multiplied with a scale (SPEC 8), by what `scaler`
    /// decided. If they overflowed, which only the device knows, no weight and no state moves.
    ///
    /// # Errors
    /// As [`record_backward`](Self::record_backward); [`Error::Order`] before [`Scaler::record_decide`].
    pub fn record_backward_scaled(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        grad_outputs: GradBuffer<'_>,
        scaler: &Scaler,
    ) -> Result<(), Error> {
        let verdict = scaler.decided("record_backward_scaled")?;
        self.record_backward_by(encoder, grad_outputs, verdict)
    }

    fn record_backward_by(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        grad_outputs: GradBuffer<'_>,
        scaler: &wgpu::Buffer,
    ) -> Result<(), Error> {
        let context = self.context.clone();
        context.guarded(|| {
            let (Some(Pending { indices, bags, weighted }), Some(space)) = (self.pending, &self.train) else {
                return Err(batch::no_forward());
            };
            let n = self.config.batch_chunks(indices, bags)?;
            if n > 0 {
                let rows = batch::output_rows(&self.rows, indices, bags);
                let (slice, wanted) = grad_outputs.wanted(u64::from(rows) * u64::from(self.config.dim));
                let gradients = context.bind("grad_outputs", slice, wanted)?;
                let robe = Robe { dense: u32::from(self.config.dense(n)), ..self.config.robe() };
                let chunks = Chunks::grown(&mut self.chunks, &context, &robe, n)?;
                let params = Params::new(&self.rows, &self.layout, Mode::Train, Purpose::Update);
                let params = params.batch(indices, bags, weighted).chunk_sums(&robe);
                let params = Params { half_grads: u32::from(grad_outputs.is_half()), ..params };
                backward(&context, encoder, &self.array, space, (chunks, n), &params, &robe, (&gradients, scaler));
            }
            self.pending = None;
            Ok(())
        })
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
    robe_gather::record(call, params, uniforms, batch, array, space, outputs);
}

/// Backward, stage by stage: the chunks sorted by where they begin, so that one invocation sums all that a weight is due.
#[allow(clippy::too_many_arguments, reason = "what a step binds")]
fn backward(
    context: &Context,
    encoder: &mut wgpu::CommandEncoder,
    array: &Array,
    space: &Space,
    (chunks, n): (&Chunks, u32),
    params: &Params,
    robe: &Robe,
    (gradients, scaler): (&wgpu::BindingResource<'_>, &wgpu::Buffer),
) {
    let call = &mut Call::begin(context, encoder, "hotrow.robe.backward");
    let uniforms = &Uniforms::new(context, params, robe);
    let step = &space.step;
    robe_keys::record(call, uniforms, space, (chunks, n));
    let Chunks { keys, access, segment, starts, accesses, targets, scratch, .. } = chunks;
    // Of as many bits as order every start, and NONE behind them all.
    let key_bits = u32::BITS - robe.starts.leading_zeros();
    let job = SortJob { keys: keys.as_entire_binding(), values: None, capacity: n, count: count::CHUNKS, key_bits };
    let to = DedupTo { segment, starts, segments: count::UNIQUE, valid: count::VALID };
    let order = dedup::record(call, step, &job, &chunks.sorted, &chunks.sort, &to).values;
    let arranged = arrange::Arranged { step, order, segment, keys, places: keys, access, accesses, targets };
    arrange::record(call, &arranged, scaler, n);
    // As many chunks as are summed at once have no partial rows.
    if n > merge::CHUNK {
        robe_merge::record(call, uniforms, params.lanes, (chunks, n), gradients);
        combine::record(call, &uniforms.params, (1, 1), &combine::Partial { targets, segment, scratch }, n);
    }
    robe_update::record(call, uniforms, robe, array, (chunks, n), gradients);
}
