//! A group of tables on the GPU, recorded into the caller's encoder. `forward.rs` has the stages of forward.

use super::{
    Context,
    backward::record_backward,
    call::Call,
    collect, exchange,
    forward::record_step,
    readback::Reports,
    reset,
    space::{Bound, FlushSpace, Space},
    tables::Tables,
};
use crate::{
    Error, GroupConfig, Layout, Placement,
    batch::{self, Pending},
    layout::{Params, Step},
    params::Mode,
    rng::Purpose,
};

/// A batch in the caller's buffers, all with `STORAGE` usage.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// `u32` indices, counted within their tables; `None` for a batch without any.
    pub indices: Option<wgpu::BufferSlice<'a>>,
    /// `u32` offsets, one a bag and one more, ascending from 0 to the number of indices.
    pub offsets: wgpu::BufferSlice<'a>,
    /// `f32` weights, one an index.
    pub weights: Option<wgpu::BufferSlice<'a>>,
}

/// A group of tables whose cache, and whose table unless mapped, live on the GPU.
///
/// `record_*` put a step into the caller's encoder and never wait. The [`Embedding`](crate::Embedding) methods upload, submit and wait.
#[derive(Debug)]
pub struct Group {
    pub(super) context: Context,
    pub(super) config: GroupConfig,
    pub(super) tables: Tables,
    pub(super) train: Option<Space>,
    pub(super) frozen: Option<Space>,
    pub(super) flush: Option<FlushSpace>,
    /// Stands where a batch has no weights or no indices.
    pub(super) nothing: wgpu::Buffer,
    /// A forward whose backward has not come.
    pub(super) pending: Option<Pending>,
    pub(super) reports: Reports,
}

impl Drop for Group {
    fn drop(&mut self) {
        self.context.forget_bindings();
    }
}

impl Group {
    /// Allocates and fills the tables.
    ///
    /// # Errors
    /// [`Error::Config`], [`Error::TooLarge`], [`Error::OutOfMemory`]; [`Error::Unsupported`] for a mapped table on a device
    /// without `MAPPABLE_PRIMARY_BUFFERS`.
    pub fn new(context: &Context, config: GroupConfig) -> Result<Self, Error> {
        let layout = Layout::new(&config, context.caps().choose_shard_bytes())?;
        if config.placement == Placement::Mapped && !context.caps().mappable {
            return Err(Error::Unsupported {
                what: "mapped placement",
                wanted: "the feature MAPPABLE_PRIMARY_BUFFERS".into(),
                found: "a device created without it".into(),
                remedy: "request it (hotrow::requirements() does), or take placement device",
            });
        }
        context.prepare(layout.width())?;
        let tables = context.guarded(|| Tables::new(context, &config, layout))?;
        let nothing = context.buffer("nothing", 16, wgpu::BufferUsages::empty())?;
        Ok(Self {
            context: context.clone(),
            config,
            tables,
            train: None,
            frozen: None,
            flush: None,
            nothing,
            pending: None,
            reports: Reports::default(),
        })
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &GroupConfig {
        &self.config
    }

    /// The context the group lives in.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Tells of a step that was left out because of a bad index or offset, if the device has said so by now. Each is told once;
    /// every `record_forward` asks too, before it records.
    ///
    /// # Errors
    /// [`Error::IndexOutOfRange`] or [`Error::BadOffsets`] of the first such step not told yet.
    pub fn check(&mut self) -> Result<(), Error> {
        self.context
            .device()
            .poll(wgpu::PollType::Poll)
            .map_err(|error| Error::Device { reason: error.to_string() })?;
        match self.reports.take() {
            None => Ok(()),
            Some((step, indices)) => Err(self.fault(&step, indices)),
        }
    }

    pub(super) fn fault(&self, step: &Step, indices: u32) -> Error {
        let (position, value) = (step.error_position, step.error_value);
        if step.error == 2 {
            return Error::BadOffsets { indices, position, value };
        }
        let table = step.error_table;
        Error::IndexOutOfRange { table, rows: self.config.tables[table as usize], position, value }
    }

    /// Records one step forward. `outputs` gets `[bags, dim]` floats, or `[indices, dim]` with pooling none; it lies in a buffer of
    /// its own.
    ///
    /// What is recorded must be submitted, in the order of the calls: a backward builds on what its forward leaves on the device.
    ///
    /// # Errors
    /// Shapes, buffers and sizes that cannot be; and a fault of an earlier step ([`Group::check`]), in which case nothing is
    /// recorded.
    pub fn record_forward(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        batch: &Batch<'_>,
        outputs: wgpu::BufferSlice<'_>,
    ) -> Result<(), Error> {
        self.record_and_report(encoder, batch, outputs, Mode::Train)
    }

    /// Records a forward that changes nothing (evaluation, inference). A forward waiting for its backward goes on waiting.
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

    /// Records a step, and has its outcome heard of when the caller's submission is done.
    fn record_and_report(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        batch: &Batch<'_>,
        outputs: wgpu::BufferSlice<'_>,
        mode: Mode,
    ) -> Result<(), Error> {
        let context = self.context.clone();
        let mut refused = false;
        let recorded = context.guarded(|| {
            self.check()?;
            // What is refused for its shape leaves all as it was, a forward that waits for its backward too.
            let indices = self.record(encoder, batch, outputs, mode).inspect_err(|_| refused = true)?;
            let space = if mode == Mode::Train { &self.train } else { &self.frozen };
            if let Some(space) = space {
                let report = self.reports.record(&self.context, encoder, indices);
                encoder.copy_buffer_to_buffer(&space.step, 0, &report, 0, size_of::<Step>() as u64);
            }
            Ok(())
        });
        if recorded.is_err() && !refused && mode == Mode::Train {
            self.pending = None;
        }
        recorded
    }

    /// Records the stages and returns the number of indices.
    pub(super) fn record(
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
        batch::check_shape(&self.config, indices, offsets - 1, batch.weights.map(|slice| slice.size() / 4))?;
        let (indices, bags) = (indices as u32, (offsets - 1) as u32);
        let params = Params::new(&self.config, &self.tables.layout, mode, Purpose::WriteBack).batch(
            indices,
            bags,
            batch.weights.is_some(),
        );
        let inputs = [("indices", batch.indices), ("offsets", Some(batch.offsets)), ("weights", batch.weights)];
        for (what, slice) in inputs {
            if slice.is_some_and(|slice| slice.buffer() == outputs.buffer()) {
                let found = format!("that of the {what}");
                return Err(Error::Buffer { what: "outputs", wanted: "a buffer of its own".into(), found });
            }
        }
        let output_rows = batch::output_rows(&self.config, indices, bags);
        let wanted = u64::from(output_rows) * u64::from(self.tables.layout.dim) * 4;
        // Binding an empty buffer is impossible, and an output nobody wants need not exist.
        let output_binding = if wanted == 0 {
            self.nothing.as_entire_binding()
        } else {
            self.context.bind("outputs", outputs, wanted)?
        };
        let nothing = self.nothing.as_entire_binding();
        let bound = Bound {
            indices: self.context.bind_or("indices", batch.indices, u64::from(indices) * 4, &nothing)?,
            offsets: self.context.bind("offsets", batch.offsets, offsets * 4)?,
            weights: self.context.bind_or("weights", batch.weights, u64::from(indices) * 4, &nothing)?,
        };
        let space = match mode {
            Mode::Train => {
                self.pending = None; // the scratch that its backward would need is used anew
                &mut self.train
            }
            Mode::Frozen | Mode::Rows => &mut self.frozen,
        };
        let space = grown(space, &self.context, &self.tables.layout, indices, mode == Mode::Train)?;
        record_step(&self.context, encoder, &self.tables, space, &params, &bound, Some((&output_binding, output_rows)));
        if mode == Mode::Train {
            self.pending = Some(Pending { indices, bags, weighted: batch.weights.is_some() });
        }
        Ok(indices)
    }

    /// Records the backward of the last recorded forward: merges `grad_outputs` (shaped as its outputs) per distinct row and
    /// updates each row once.
    ///
    /// # Errors
    /// [`Error::Order`] without a forward, [`Error::Buffer`] for a buffer of the wrong kind or size.
    pub fn record_backward(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        grad_outputs: wgpu::BufferSlice<'_>,
    ) -> Result<(), Error> {
        let context = self.context.clone();
        context.guarded(|| {
            let (Some(Pending { indices, bags, weighted }), Some(space)) = (self.pending, &self.train) else {
                return Err(batch::no_forward());
            };
            let rows = batch::output_rows(&self.config, indices, bags);
            if indices > 0 {
                let wanted = u64::from(rows) * u64::from(self.tables.layout.dim) * 4;
                let grads = self.context.bind("grad_outputs", grad_outputs, wanted)?;
                let params = Params::new(&self.config, &self.tables.layout, Mode::Train, Purpose::Update)
                    .batch(indices, bags, weighted);
                record_backward(&self.context, encoder, &self.tables, space, params, &grads);
            }
            self.pending = None;
            Ok(())
        })
    }

    /// Records the write-back of every dirty row. A second flush writes nothing.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the list of dirty rows cannot be allocated.
    pub fn record_flush(&mut self, encoder: &mut wgpu::CommandEncoder) -> Result<(), Error> {
        let context = self.context.clone();
        context.guarded(|| {
            let layout = &self.tables.layout;
            if layout.sets == 0 {
                return Ok(());
            }
            let space = match &mut self.flush {
                Some(space) => space,
                none => none.insert(FlushSpace::new(&self.context, layout)?),
            };
            encoder.clear_buffer(&space.step, 0, None);
            let uniform = self.context.uniform(&Params::new(&self.config, layout, Mode::Train, Purpose::WriteBack));
            let call = &mut Call::begin(&self.context, encoder, "hotrow.flush");
            collect::record(call, &uniform, &self.tables, space);
            let FlushSpace { step, moves, no_scratch } = space;
            let list = exchange::List { step, moves, capacity: layout.slots(), scratch: no_scratch };
            exchange::record(call, &uniform, &self.tables, &list, exchange::Phases::Pack);
            Ok(())
        })
    }

    /// Records the emptying of the cache without a flush: what was not written back is discarded.
    ///
    /// # Errors
    /// [`Error::Order`] between forward and backward.
    pub fn record_reset_discarding(&mut self, encoder: &mut wgpu::CommandEncoder) -> Result<(), Error> {
        let context = self.context.clone();
        context.guarded(|| {
            batch::not_pending(self.pending, "reset")?;
            let layout = &self.tables.layout;
            let uniform = self.context.uniform(&Params::new(&self.config, layout, Mode::Train, Purpose::WriteBack));
            reset::record(&mut Call::begin(&self.context, encoder, "hotrow.reset"), &uniform, &self.tables);
            Ok(())
        })
    }

    /// Gives up the backward of the last forward, so that rows may be written or the cache reset.
    pub fn abandon_backward(&mut self) {
        self.pending = None;
    }
}

pub(super) fn grown<'s>(
    space: &'s mut Option<Space>,
    context: &Context,
    layout: &Layout,
    indices: u32,
    train: bool,
) -> Result<&'s Space, Error> {
    // A smaller one is freed before the larger one is allocated.
    match space.take_if(|space| space.capacity >= indices) {
        Some(enough) => Ok(space.insert(enough)),
        None => {
            *space = None;
            context.forget_bindings();
            Ok(space.insert(Space::new(context, layout, indices, train)?))
        }
    }
}
