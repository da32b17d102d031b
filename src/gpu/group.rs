//! A group of tables on the GPU: the story of a step, in order.

use super::{
    Context, admit, assign, begin, bounds,
    call::Call,
    collect, combine, dedup,
    dedup::DedupTo,
    fetch, gather, linearize, locate, merge, probe,
    readback::Reports,
    reset, resolve,
    sort::{SortJob, Sorted},
    space::{Bound, FlushSpace, Space},
    tables::{self, Tables},
    touch, update, write_back,
};
use crate::{
    Counters, Embedding, Error, GroupConfig, Layout, Placement, Snapshot, batch,
    layout::{Params, Step, count},
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
/// `record_*` put a step into the caller's encoder and never wait. The [`Embedding`] methods upload, submit and wait.
#[derive(Debug)]
pub struct Group {
    context: Context,
    pub(super) config: GroupConfig,
    pub(super) tables: Tables,
    pub(super) train: Option<Space>,
    pub(super) frozen: Option<Space>,
    pub(super) flush: Option<FlushSpace>,
    /// Stands where a batch has no weights or no indices.
    pub(super) nothing: wgpu::Buffer,
    /// Indices and bags of a forward whose backward has not come.
    pending: Option<(u32, u32)>,
    pub(super) reports: Reports,
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

    fn fault(&self, step: &Step, indices: u32) -> Error {
        let (position, value) = (step.error_position, step.error_value);
        if step.error == 2 {
            return Error::BadOffsets { indices, position, value };
        }
        let table = step.error_table;
        Error::IndexOutOfRange { table, rows: self.config.tables[table as usize], position, value }
    }

    /// Records one step forward. `outputs` gets `[bags, dim]` floats, or `[indices, dim]` with pooling none.
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
        let context = self.context.clone();
        context.guarded(|| {
            self.check()?;
            let indices = self.record(encoder, batch, outputs, Mode::Train)?;
            self.report(encoder, Mode::Train, indices);
            Ok(())
        })
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
        let context = self.context.clone();
        context.guarded(|| {
            self.check()?;
            let indices = self.record(encoder, batch, outputs, Mode::Frozen)?;
            self.report(encoder, Mode::Frozen, indices);
            Ok(())
        })
    }

    /// Has the outcome of the step just recorded heard of when the caller's submission is done.
    fn report(&self, encoder: &mut wgpu::CommandEncoder, mode: Mode, indices: u32) {
        let space = if mode == Mode::Train { &self.train } else { &self.frozen };
        if let Some(space) = space {
            let report = self.reports.record(&self.context, encoder, indices);
            encoder.copy_buffer_to_buffer(&space.step, 0, &report, 0, size_of::<Step>() as u64);
        }
    }

    /// Records the stages and returns the number of indices.
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
        batch::check_shape(&self.config, indices, offsets - 1, batch.weights.map(|slice| slice.size() / 4))?;
        let (indices, bags) = (indices as u32, (offsets - 1) as u32);
        let params = Params::new(&self.config, &self.tables.layout, mode, Purpose::WriteBack).batch(
            indices,
            bags,
            batch.weights.is_some(),
        );
        let output_rows = batch::output_rows(&self.config, indices, bags);
        let wanted = u64::from(output_rows) * u64::from(self.tables.layout.dim) * 4;
        // Binding an empty buffer is impossible, and an output nobody wants need not exist.
        let output_binding =
            if wanted == 0 { self.nothing.as_entire_binding() } else { self.bind("outputs", outputs, wanted)? };
        let nothing = self.nothing.as_entire_binding();
        let bound = Bound {
            indices: self.bind_or("indices", batch.indices, u64::from(indices) * 4, &nothing)?,
            offsets: self.bind("offsets", batch.offsets, offsets * 4)?,
            weights: self.bind_or("weights", batch.weights, u64::from(indices) * 4, &nothing)?,
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
            self.pending = Some((indices, bags));
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
            let (Some((indices, bags)), Some(space)) = (self.pending, &self.train) else {
                return Err(no_forward());
            };
            let rows = batch::output_rows(&self.config, indices, bags);
            if indices > 0 {
                let wanted = u64::from(rows) * u64::from(self.tables.layout.dim) * 4;
                let grads = self.bind("grad_outputs", grad_outputs, wanted)?;
                let params = Params::new(&self.config, &self.tables.layout, Mode::Train, Purpose::Update)
                    .batch(indices, bags, false);
                let uniform = self.context.uniform(&params);
                let call = &mut Call::begin(&self.context, encoder, "hotrow.backward");
                let sorted = space.by_row.sorted(self.tables.layout.row_bits());
                merge::record(call, &uniform, space, &sorted, indices, &grads);
                combine::record(call, &uniform, space);
                update::record(call, &uniform, &self.tables, space);
                write_back::record(call, &uniform, &self.tables, &bypass_work(space));
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
            let (mut rows, mut sources) = (&space.rows, &space.sources);
            if layout.shards > 1 {
                let job = SortJob {
                    keys: &space.rows,
                    values: None, // a slot is its position
                    capacity: layout.slots(),
                    count: count::SLOTS,
                    key_bits: layout.row_bits(),
                };
                let sorted = space.by_row.record(call, &space.step, &job, &space.sort);
                (rows, sources) = (sorted.keys, sorted.values);
            }
            let list = bounds::List { rows, count: count::SLOTS, sorted: layout.shards > 1, per_group: 1 };
            bounds::record(call, &space.step, &self.tables, &list, &space.ranges);
            let work = write_back::Work { rows, sources, scratch: &space.no_scratch, ranges: &space.ranges };
            write_back::record(call, &uniform, &self.tables, &work);
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
            self.not_pending("reset")?;
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

    fn not_pending(&self, call: &'static str) -> Result<(), Error> {
        if self.pending.is_none() {
            return Ok(());
        }
        Err(Error::Order {
            call,
            wanted: "the backward of the last forward, or abandon_backward",
            found: "a forward whose backward has not come",
        })
    }

    fn bind<'b>(
        &self,
        what: &'static str,
        slice: wgpu::BufferSlice<'b>,
        wanted: u64,
    ) -> Result<wgpu::BindingResource<'b>, Error> {
        let buffer = slice.buffer();
        let (offset, size) = (slice.offset(), slice.size());
        let fail = |wanted: String, found: String| Err(Error::Buffer { what, wanted, found });
        if !buffer.usage().contains(wgpu::BufferUsages::STORAGE) {
            return fail("usage STORAGE".into(), format!("{:?}", buffer.usage()));
        }
        let alignment = u64::from(self.context.caps().offset_alignment);
        if offset % alignment != 0 {
            return fail(format!("an offset that is a multiple of {alignment}"), offset.to_string());
        }
        if size < wanted {
            return fail(format!("{wanted} bytes"), format!("{size} bytes"));
        }
        if size > self.context.caps().binding_bytes {
            let limit = self.context.caps().binding_bytes;
            return Err(Error::TooLarge { what, wanted: size, limit, remedy: "split the batch" });
        }
        Ok(wgpu::BindingResource::Buffer(wgpu::BufferBinding { buffer, offset, size: std::num::NonZeroU64::new(size) }))
    }

    fn bind_or<'b>(
        &self,
        what: &'static str,
        slice: Option<wgpu::BufferSlice<'b>>,
        wanted: u64,
        nothing: &wgpu::BindingResource<'b>,
    ) -> Result<wgpu::BindingResource<'b>, Error> {
        match slice {
            Some(slice) if wanted > 0 => self.bind(what, slice, wanted),
            _ => Ok(nothing.clone()),
        }
    }

    fn encoder(&self) -> wgpu::CommandEncoder {
        self.context.device().create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some("hotrow") })
    }

    fn upload(&self, what: &'static str, words: &[u8]) -> Result<wgpu::Buffer, Error> {
        let buffer = self.context.buffer(what, words.len() as u64, wgpu::BufferUsages::empty())?;
        self.context.queue().write_buffer(&buffer, 0, words);
        Ok(buffer)
    }

    /// Uploads a batch, records it in `mode`, waits for its outputs.
    fn run(
        &mut self,
        indices: &[u32],
        offsets: &[u32],
        weights: Option<&[f32]>,
        mode: Mode,
    ) -> Result<Vec<f32>, Error> {
        let context = self.context.clone();
        context.guarded(|| {
            self.check()?;
            batch::check_shape(
                &self.config,
                indices.len() as u64,
                offsets.len().max(1) as u64 - 1,
                weights.map(|w| w.len() as u64),
            )?;
            batch::check_offsets(indices.len() as u64, offsets)?;
            let bytes = u64::from(batch::output_rows(&self.config, indices.len() as u32, offsets.len() as u32 - 1))
                * u64::from(self.tables.layout.dim)
                * 4;
            let outputs = self.context.buffer("outputs", bytes, wgpu::BufferUsages::empty())?;
            let index_buffer = self.upload("indices", bytemuck::cast_slice(indices))?;
            let offset_buffer = self.upload("offsets", bytemuck::cast_slice(offsets))?;
            let weight_buffer =
                weights.map(|weights| self.upload("weights", bytemuck::cast_slice(weights))).transpose()?;
            let n = indices.len() as u64 * 4;
            let uploaded = Batch {
                indices: (n > 0).then(|| index_buffer.slice(..n)),
                offsets: offset_buffer.slice(..offsets.len() as u64 * 4),
                weights: weight_buffer.as_ref().map(|buffer| buffer.slice(..n)),
            };
            let mut encoder = self.encoder();
            self.record(&mut encoder, &uploaded, outputs.slice(..), mode)?;
            let Some(space) = (if mode == Mode::Train { &self.train } else { &self.frozen }) else {
                return Ok(Vec::new());
            };
            let words =
                self.context.download(encoder, &[(&outputs, bytes), (&space.step, size_of::<Step>() as u64)])?;
            let step: Step = bytemuck::pod_read_unaligned(bytemuck::cast_slice(&words[1]));
            if step.error != 0 {
                if mode == Mode::Train {
                    self.pending = None;
                }
                return Err(self.fault(&step, indices.len() as u32));
            }
            Ok(words[0].iter().map(|&word| f32::from_bits(word)).collect())
        })
    }

    /// Records the look-up of linear rows, one output row each, into the frozen space.
    fn record_rows(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        rows: &[u32],
        outputs: Option<&wgpu::Buffer>,
    ) -> Result<Params, Error> {
        let n = rows.len() as u32;
        let params = Params::new(&self.config, &self.tables.layout, Mode::Rows, Purpose::Write).rows(n);
        let indices = self.upload("rows", bytemuck::cast_slice(rows))?;
        let offsets: Vec<u32> = (0..=n).collect();
        let offsets = self.upload("offsets", bytemuck::cast_slice(&offsets))?;
        let bound = Bound {
            indices: indices.as_entire_binding(),
            offsets: offsets.as_entire_binding(),
            weights: self.nothing.as_entire_binding(),
        };
        let space = grown(&mut self.frozen, &self.context, &self.tables.layout, n, false)?;
        let binding = outputs.map(wgpu::Buffer::as_entire_binding);
        record_step(
            &self.context,
            encoder,
            &self.tables,
            space,
            &params,
            &bound,
            binding.as_ref().map(|binding| (binding, n)),
        );
        Ok(params)
    }
}

/// The stages of forward, in order (SPEC 3).
fn record_step(
    context: &Context,
    encoder: &mut wgpu::CommandEncoder,
    tables: &Tables,
    space: &Space,
    params: &Params,
    batch: &Bound<'_>,
    outputs: Option<(&wgpu::BindingResource<'_>, u32)>,
) {
    let layout = &tables.layout;
    let uniform = context.uniform(params);
    encoder.clear_buffer(&space.step, 0, None);
    let call = &mut Call::begin(context, encoder, "hotrow.forward");
    linearize::record(call, params, &uniform, batch, tables, space);
    begin::record(call, &uniform, batch, tables, space);
    if params.indices > 0 {
        let rows = SortJob {
            keys: &space.keys,
            values: None,
            capacity: params.indices,
            count: count::INDICES,
            key_bits: layout.row_bits(),
        };
        let to =
            DedupTo { segment: &space.segment, starts: &space.starts, segments: count::UNIQUE, valid: count::VALID };
        let sorted = dedup::record(call, &space.step, &rows, &space.by_row, &space.sort, &to);
        probe::record(call, &uniform, tables, space, &sorted);
        let list = |per_group| bounds::List { rows: &space.rows, count: count::UNIQUE, sorted: true, per_group };
        bounds::record(call, &space.step, tables, &list(1), &space.row_ranges);
        if params.mode == Mode::Train as u32 {
            if !tables.freqs.is_empty() {
                bounds::record(call, &space.step, tables, &list(touch::PER_GROUP), &space.touch_ranges);
                touch::record(call, tables, space, &space.touch_ranges);
            }
            if layout.sets > 0 {
                record_admission(call, &uniform, tables, space);
            }
        }
        resolve::record(call, &uniform, tables, space);
        fetch::record(call, &uniform, tables, space);
        locate::record(call, &uniform, space, &sorted, params.indices);
    }
    if let Some((outputs, rows)) = outputs {
        gather::record(call, &uniform, batch, tables, space, outputs, rows);
    }
}

/// Missing rows set by set; admission; write-back of the dirty victims, before their slots are filled anew.
fn record_admission(call: &mut Call<'_>, uniform: &wgpu::Buffer, tables: &Tables, space: &Space) {
    let layout = &tables.layout;
    let missing = SortJob {
        keys: &space.set_keys,
        values: None,
        capacity: space.rows_capacity,
        count: count::UNIQUE,
        key_bits: layout.set_bits(),
    };
    let to =
        DedupTo { segment: &space.set_segment, starts: &space.set_starts, segments: count::SETS, valid: count::MISSES };
    let sets = dedup::record(call, &space.step, &missing, &space.by_set, &space.sort, &to);
    admit::record(call, uniform, tables, space, &sets);
    let (mut rows, mut sources) = (&space.victim_rows, &space.victim_slots);
    if layout.shards > 1 {
        let victims = SortJob {
            keys: rows,
            values: Some(sources),
            capacity: space.rows_capacity,
            count: count::MISSES,
            key_bits: layout.row_bits(),
        };
        let sorted: Sorted<'_> = space.by_victim.record(call, &space.step, &victims, &space.sort);
        (rows, sources) = (sorted.keys, sorted.values);
    }
    let list = bounds::List { rows, count: count::MISSES, sorted: layout.shards > 1, per_group: 1 };
    bounds::record(call, &space.step, tables, &list, &space.victim_ranges);
    let work = write_back::Work { rows, sources, scratch: &space.scratch, ranges: &space.victim_ranges };
    write_back::record(call, uniform, tables, &work);
}

/// The rows that update or assign left in scratch.
fn bypass_work(space: &Space) -> write_back::Work<'_> {
    write_back::Work { rows: &space.rows, sources: &space.sources, scratch: &space.scratch, ranges: &space.row_ranges }
}

fn grown<'s>(
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
            Ok(space.insert(Space::new(context, layout, indices, train)?))
        }
    }
}

fn no_forward() -> Error {
    Error::Order { call: "backward", wanted: "a forward before each backward", found: "none since the last backward" }
}

impl Embedding for Group {
    fn layout(&self) -> &Layout {
        &self.tables.layout
    }

    fn forward(&mut self, indices: &[u32], offsets: &[u32], weights: Option<&[f32]>) -> Result<Vec<f32>, Error> {
        self.run(indices, offsets, weights, Mode::Train)
    }

    fn forward_frozen(&mut self, indices: &[u32], offsets: &[u32], weights: Option<&[f32]>) -> Result<Vec<f32>, Error> {
        self.run(indices, offsets, weights, Mode::Frozen)
    }

    fn backward(&mut self, grad_outputs: &[f32]) -> Result<(), Error> {
        let context = self.context.clone();
        context.guarded(|| {
            let (indices, bags) = self.pending.ok_or_else(no_forward)?;
            let rows = batch::output_rows(&self.config, indices, bags);
            let wanted = u64::from(rows) * u64::from(self.tables.layout.dim);
            if grad_outputs.len() as u64 != wanted {
                return Err(Error::Length { what: "grad_outputs", wanted, found: grad_outputs.len() as u64 });
            }
            let grads = self.upload("grad_outputs", bytemuck::cast_slice(grad_outputs))?;
            let mut encoder = self.encoder();
            self.record_backward(&mut encoder, grads.slice(..))?;
            self.context.finish(encoder)
        })
    }

    fn flush(&mut self) -> Result<(), Error> {
        let context = self.context.clone();
        context.guarded(|| {
            let mut encoder = self.encoder();
            self.record_flush(&mut encoder)?;
            self.context.finish(encoder)
        })
    }

    fn reset(&mut self) -> Result<(), Error> {
        let context = self.context.clone();
        context.guarded(|| {
            self.not_pending("reset")?;
            let mut encoder = self.encoder();
            self.record_flush(&mut encoder)?;
            self.record_reset_discarding(&mut encoder)?;
            self.context.finish(encoder)
        })
    }

    fn reset_discarding(&mut self) -> Result<(), Error> {
        let context = self.context.clone();
        context.guarded(|| {
            let mut encoder = self.encoder();
            self.record_reset_discarding(&mut encoder)?;
            self.context.finish(encoder)
        })
    }

    fn read_rows(&mut self, rows: &[u32]) -> Result<Vec<f32>, Error> {
        let context = self.context.clone();
        context.guarded(|| {
            batch::check_rows(&self.tables.layout, rows)?;
            if rows.is_empty() {
                return Ok(Vec::new());
            }
            let bytes = rows.len() as u64 * u64::from(self.tables.layout.dim) * 4;
            let outputs = self.context.buffer("outputs", bytes, wgpu::BufferUsages::empty())?;
            let mut encoder = self.encoder();
            self.record_rows(&mut encoder, rows, Some(&outputs))?;
            let words = self.context.download(encoder, &[(&outputs, bytes)])?;
            Ok(words[0].iter().map(|&word| f32::from_bits(word)).collect())
        })
    }

    fn write_rows(&mut self, rows: &[u32], values: &[f32]) -> Result<(), Error> {
        let context = self.context.clone();
        context.guarded(|| {
            self.not_pending("write_rows")?;
            batch::check_rows(&self.tables.layout, rows)?;
            let dim = self.tables.layout.dim as usize;
            let wanted = rows.len() as u64 * dim as u64;
            if values.len() as u64 != wanted {
                return Err(Error::Length { what: "values", wanted, found: values.len() as u64 });
            }
            if rows.is_empty() {
                return Ok(());
            }
            let last = batch::last_of_each(rows);
            let ascending: Vec<u32> = last.iter().map(|&(row, _)| row).collect();
            let values: Vec<f32> =
                last.iter().flat_map(|&(_, at)| &values[at * dim..(at + 1) * dim]).copied().collect();
            let values = self.upload("values", bytemuck::cast_slice(&values))?;
            let mut encoder = self.encoder();
            let params = self.record_rows(&mut encoder, &ascending, None)?;
            if let Some(space) = &self.frozen {
                let uniform = self.context.uniform(&params);
                let call = &mut Call::begin(&self.context, &mut encoder, "hotrow.write_rows");
                assign::record(call, &uniform, &self.tables, space, &values);
                write_back::record(call, &uniform, &self.tables, &bypass_work(space));
            }
            self.context.finish(encoder)
        })
    }

    fn counters(&mut self) -> Result<Vec<Counters>, Error> {
        let context = self.context.clone();
        context.guarded(|| {
            let words = self.context.download(self.encoder(), &[(&self.tables.tables, self.tables.tables.size())])?;
            let stride = self.tables.layout.stride();
            let mut counters = Counters::from_words(&words[0], stride);
            counters.truncate(self.config.tables.len());
            Ok(counters)
        })
    }

    fn snapshot(&mut self) -> Result<Snapshot, Error> {
        let context = self.context.clone();
        context.guarded(|| {
            let layout = &self.tables.layout;
            let slots = u64::from(layout.slots());
            let mut sources = vec![
                (&self.tables.tables, 4 * tables::table_words(&self.config).len() as u64),
                (&self.tables.ways, slots * 16),
                (&self.tables.cache, slots * u64::from(layout.row_words) * 4),
            ];
            let rows = |shard: usize| u64::from(layout.shard_rows(shard as u32));
            sources
                .extend(self.tables.records.iter().enumerate().map(|(i, buffer)| (buffer, rows(i) * layout.stride())));
            sources.extend(self.tables.freqs.iter().enumerate().map(|(i, buffer)| (buffer, rows(i) * 4)));
            let mut words = self.context.download(self.encoder(), &sources)?;
            let freqs = words.split_off(3 + self.tables.records.len()).concat();
            let records = words.split_off(3).concat();
            let counters = Counters::from_words(&words[0], layout.stride());
            Ok(Snapshot {
                t: words[0][0],
                ways: std::mem::take(&mut words[1]),
                cache: words[2].iter().map(|&word| f32::from_bits(word)).collect(),
                records,
                freqs,
                counters,
            })
        })
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        let context = self.context.clone();
        context.guarded(|| {
            let Tables { layout, records, freqs, .. } = &self.tables;
            snapshot.check(layout, self.config.tables.len(), !freqs.is_empty())?;
            let queue = self.context.queue();
            let mut words = tables::table_words(&self.config);
            words[0] = snapshot.t;
            Counters::to_words(&snapshot.counters, &mut words);
            queue.write_buffer(&self.tables.tables, 0, bytemuck::cast_slice(&words));
            queue.write_buffer(&self.tables.ways, 0, bytemuck::cast_slice(&snapshot.ways));
            queue.write_buffer(&self.tables.cache, 0, bytemuck::cast_slice(&snapshot.cache));
            let shard_words = (layout.rows_per_shard * layout.record_words) as usize;
            for (buffer, words) in records.iter().zip(snapshot.records.chunks(shard_words)) {
                queue.write_buffer(buffer, 0, bytemuck::cast_slice(words));
            }
            for (buffer, words) in freqs.iter().zip(snapshot.freqs.chunks(layout.rows_per_shard as usize)) {
                queue.write_buffer(buffer, 0, bytemuck::cast_slice(words));
            }
            Ok(())
        })
    }

    fn set_learning_rate(&mut self, lr: f32) {
        self.config.optimizer.lr = lr;
    }
}
