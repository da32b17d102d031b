//! A group of tables on the GPU, encoded into the caller's encoder. `forward.rs` has the order of forward's stages.

use std::{
    mem::offset_of,
    sync::{Arc, atomic::AtomicBool},
};

use crate::{
    config::{GroupConfig, Placement, WAYS},
    error::Error,
    gpu::{
        cached::{
            backward::{Gradients, encode_backward},
            forward::Forward,
            prefetched::Prefetched,
            staged::{Staged, traffic::Traffic},
            storage::Storage,
        },
        device::{DeviceGroup, Kind},
        engine::{
            bind::{Batch, FloatBuffer, WeightGradient},
            call::{Call, Groups},
            context::Context,
            numbers::{CONTINUED, WHOLE},
            readback::Tells,
            scratch,
        },
        reader::ReadableBuffers,
        stages::{
            COLLECT, RESET, WEIGHT_GRADIENT,
            cached::{
                exchange::{self, Records},
                space::{Bound, FlushSpace, Space},
                tables::Tables,
            },
        },
    },
    lookup::Embedding,
    memory::MemoryReport,
    source::Source,
    store::{self, SharedStore},
    table::{
        abi::{Params, Rate, Step},
        batch,
        counters::Counters,
        layout::Layout,
        params::Mode,
        rng::Purpose,
        step_state::Pending,
    },
};

/// A group of tables whose cache lives in GPU memory. The tables live there too, unless they are mapped or staged.
///
/// ```
/// use hotrow::wgpu::{self, util::DeviceExt as _};
/// use hotrow::{Batch, Group, GroupConfig, Init, Mode, adapter, prelude::*};
///
/// # fn main() -> Result<(), hotrow::Error> {
/// // A program that has a device and a queue calls `Context::new`.
/// let Ok(context) = adapter::open_best() else { return Ok(()) };
/// let storage = |words: &[u32]| {
///     context.device().create_buffer_init(&wgpu::util::BufferInitDescriptor {
///         label: None,
///         contents: bytemuck::cast_slice(words),
///         usage: wgpu::BufferUsages::STORAGE,
///     })
/// };
/// let (indices, offsets) = (storage(&[3, 7, 3]), storage(&[0, 2, 3])); // two bags: rows 3 and 7, and row 3 alone
/// let (outputs, grads) = (storage(&[0; 2 * 4]), storage(&[1f32.to_bits(); 2 * 4]));
///
/// let config = GroupConfig::new(&[100], 4).with_init(Init::Constant(1.0)).with_cache_rows(32);
/// let mut group = Group::new(&context, config)?;
/// let mut encoder = context.device().create_command_encoder(&Default::default());
/// let batch = Batch { indices: Some(indices.slice(..)), offsets: offsets.slice(..), weights: None };
/// group.encode_forward(&mut encoder, &batch, outputs.slice(..), Mode::Train)?;
/// // ... your passes: the loss from `outputs`, its gradient into `grads` ...
/// group.encode_backward(&mut encoder, grads.slice(..))?;
/// context.queue().submit([encoder.finish()]);
/// assert_eq!(group.read_rows(&[3])?, [1.0 - 0.01 * 2.0; 4]); // SGD at 0.01; two bags have row 3
/// # Ok(())
/// # }
/// ```
///
/// The `encode_*` methods put a step into the caller's encoder and never wait. The [`Embedding`](crate::Embedding) methods upload, submit
/// and wait.
pub type Group = DeviceGroup<Rows>;

/// The tables of a [`Group`], and the scratch of its steps.
#[derive(Debug)]
pub struct Rows {
    pub(crate) config: GroupConfig,
    pub(crate) tables: Tables,
    /// Step scratch of training steps. There are two, so that a batch can be prefetched while the last one waits for its backward.
    pub(crate) train: [Option<Space>; 2],
    pub(crate) frozen: Option<Space>,
    pub(crate) flush: Option<FlushSpace>,
    pub(crate) storage: Storage,
    /// The prefetched batch whose forward was encoded last, and a flag that says whether that encoder was dropped.
    pub(crate) carried: Option<(Prefetched, Arc<AtomicBool>)>,
    /// A step was decided whose rows were never moved.
    pub(crate) lost: bool,
    /// The reason for the table's placement.
    reason: &'static str,
}

/// The reason for a table on the device that was not asked for.
const HAS_MEMORY: &str = "the device has the memory for it";

impl Group {
    /// Allocates and fills the tables.
    ///
    /// # Errors
    /// [`Error::Config`], [`Error::TooLarge`], [`Error::OutOfMemory`]; [`Error::Unsupported`] for a mapped table on a device
    /// without `MAPPABLE_PRIMARY_BUFFERS`, and for other than 32 ways.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn new(context: &Context, config: GroupConfig) -> Result<Self, Error> {
        Self::build(context, config, None, None)
    }

    /// As [`Group::new`], as a future. In a browser only this one knows whether the device has the memory: [`Placement::Auto`] then takes a
    /// placement on the host.
    ///
    /// # Errors
    /// As [`Group::new`].
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub async fn new_async(context: &Context, config: GroupConfig) -> Result<Self, Error> {
        let make = async |config| {
            let group = Self::with_placement(context, config, None, None)?;
            context.check_async().await.map(|()| group)
        };
        if config.placement != Placement::Auto {
            return make(config).await;
        }
        match make(GroupConfig { placement: Placement::Device, ..config.clone() }).await {
            // Other faults of the first group must not be reported for the second.
            Err(Error::OutOfMemory { .. }) => while context.check_async().await.is_err() {},
            made => return made.map(|group| group.with_reason(HAS_MEMORY)),
        }
        let (placement, reason) = context.caps().choose_host_placement();
        make(GroupConfig { placement, ..config }).await.map(|group| group.with_reason(reason))
    }

    /// As [`Group::new`], with the values of `source`, rounded by [`GroupConfig::write_rounding`], instead of drawn ones ([`GroupConfig::init`]).
    ///
    /// # Errors
    /// As [`Group::new`]; the errors of `source`; [`Error::Source`] for the first row with a value that is not finite.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn filled(context: &Context, config: GroupConfig, source: &dyn Source) -> Result<Self, Error> {
        Self::build(context, config, Some(source), None)
    }

    /// Creates a staged group whose records live in `store`. A clone of `store` can still read the table if the group fails. A store that
    /// holds values already keeps them, and its step number goes on.
    ///
    /// # Errors
    /// As [`Group::new`]; [`Error::Store`] if the store has another shape or fails; [`Error::Config`] for a placement other than auto or
    /// staged.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn with_store(context: &Context, config: GroupConfig, store: SharedStore) -> Result<Self, Error> {
        let config = match config.placement {
            Placement::Auto => GroupConfig { placement: Placement::Staged, ..config },
            _ => config,
        };
        if config.placement != Placement::Staged {
            let found = format!("{} and a store", config.placement);
            return Err(Error::Config { field: "placement", wanted: "staged".into(), found });
        }
        Self::build(context, config, None, Some(store))
    }

    fn build(
        context: &Context,
        config: GroupConfig,
        source: Option<&dyn Source>,
        store: Option<SharedStore>,
    ) -> Result<Self, Error> {
        if config.placement != Placement::Auto {
            return Self::with_placement(context, config, source, store);
        }
        let device = GroupConfig { placement: Placement::Device, ..config.clone() };
        match Self::with_placement(context, device, source, None) {
            // The device lacks the memory for it.
            Err(error @ Error::OutOfMemory { .. }) => log::debug!("the table does not fit the device: {error}"),
            Ok(group) => return Ok(group.with_reason(HAS_MEMORY)),
            Err(error) => return Err(error),
        }
        let (placement, reason) = context.caps().choose_host_placement();
        Self::with_placement(context, GroupConfig { placement, ..config }, source, None)
            .map(|group| group.with_reason(reason))
    }

    fn with_reason(mut self, reason: &'static str) -> Self {
        log::debug!("placement {}: {reason}", self.kind.config.placement);
        self.kind.reason = reason;
        self
    }

    /// Builds a group whose [`GroupConfig::placement`] is not auto.
    fn with_placement(
        context: &Context,
        config: GroupConfig,
        source: Option<&dyn Source>,
        store: Option<SharedStore>,
    ) -> Result<Self, Error> {
        let layout = Layout::new(&config, context.caps().choose_piece_bytes())?;
        layout.log_ways();
        if config.ways != WAYS {
            return Err(Error::Unsupported {
                what: "ways",
                wanted: format!("sets of {}", config.ways),
                found: format!("shaders for sets of {WAYS}"),
                remedy: "leave GroupConfig::ways at 32, or take the CPU backend, hotrow::CpuGroup",
            });
        }
        if config.placement == Placement::Mapped && !context.caps().mappable {
            return Err(Error::Unsupported {
                what: "mapped placement",
                wanted: "the feature MAPPABLE_PRIMARY_BUFFERS".into(),
                found: "a device created without it".into(),
                remedy: "request it, or take placement staged or device",
            });
        }
        context.caps().check_cache(&layout)?;
        Tables::prepare(context, &config, &layout)?;
        let store = match config.placement {
            Placement::Staged => Some(store.map_or_else(|| SharedStore::in_ram(&config), Ok)?),
            _ => None,
        };
        if let Some(store) = &store {
            store::check_shape(&**store.read(), &layout)?;
            store.read().check(&config)?;
        }
        let hold = store.as_ref().map(SharedStore::hold).transpose()?;
        let tables = context.guarded(|| Tables::new(context, &config, layout, source, store.as_ref()))?;
        let storage = store.zip(hold).map_or(Storage::Resident, |(store, hold)| {
            Storage::Staged(Box::new(Staged::new(context, store, hold, &tables, config.policy)))
        });
        let (train, reason) = ([None, None], "it was asked for");
        let (frozen, flush, carried, lost) = (None, None, None, false);
        let rows = Rows { config, tables, train, frozen, flush, storage, carried, lost, reason };
        let group = Self::with_kind(context, rows)?;
        // Last, so that a group that cannot be built leaves the store as it was.
        if let Some(store) = group.store() {
            let mut store = store.write();
            if !store.filled() {
                store::fill(&mut **store, &group.kind.config, source)?;
            }
        }
        Ok(group)
    }

    /// The placement of the table, and the reason for it.
    #[must_use]
    pub fn placed(&self) -> (Placement, &'static str) {
        (self.kind.config.placement, self.kind.reason)
    }

    /// The store of a staged table, `None` for other placements. The store lacks changes that the cache has not flushed.
    #[must_use]
    pub fn store(&self) -> Option<&SharedStore> {
        self.kind.storage.staged().map(Staged::store)
    }

    /// The traffic between device and host of a staged table, `None` for other placements.
    #[must_use]
    pub fn traffic(&self) -> Option<Traffic> {
        self.kind.storage.staged().map(Staged::traffic)
    }

    /// The configuration.
    #[cfg(target_family = "wasm")]
    #[must_use]
    pub fn config(&self) -> &GroupConfig {
        &self.kind.config
    }

    /// The parameters of a batch, after its shape and buffers are checked.
    pub(crate) fn batch_params(&self, batch: &Batch<'_>, mode: Mode) -> Result<Params, Error> {
        let (indices, bags) = batch.shape(&self.kind.config)?;
        let params = Params::new(&self.kind.config, &self.kind.tables.layout, mode, Purpose::WriteBack);
        Ok(params.batch(indices, bags, batch.weights.is_some()))
    }

    /// The caller's outputs, checked, and their number of rows.
    pub(crate) fn bound_outputs<'b>(
        &'b self,
        batch: &Batch<'_>,
        params: &Params,
        outputs: wgpu::BufferSlice<'b>,
    ) -> Result<(wgpu::BindingResource<'b>, u32), Error> {
        self.context.bind_outputs(&self.kind.config, &self.dummy, batch, params, outputs)
    }

    /// Encodes the write-back of every dirty row. A second flush writes nothing.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the list of dirty rows cannot be allocated.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn encode_flush(&mut self, encoder: &mut wgpu::CommandEncoder) -> Result<(), Error> {
        let context = self.context.clone();
        context.guarded(|| {
            self.not_prefetched("flush")?;
            self.kind.not_staged("encoding a flush", "call Embedding::flush, which waits")?;
            let layout = &self.kind.tables.layout;
            if layout.sets == 0 {
                return Ok(());
            }
            let space = match &mut self.kind.flush {
                Some(space) => space,
                none => none.insert(FlushSpace::new(&self.context, layout)?),
            };
            encoder.clear_buffer(&space.step, 0, None);
            let params = Params::new(&self.kind.config, layout, Mode::Train, Purpose::WriteBack);
            let mut call = Call::begin(&self.context, encoder, "hotrow.flush");
            encode_collect(&mut call, &params, &self.kind.tables, space);
            let FlushSpace { step, swaps, no_scratch } = space;
            let list =
                exchange::List { step, swaps, capacity: layout.slots(), scratch: no_scratch, records: Records::Table };
            exchange::encode(&mut call, &params, &self.kind.tables, &list, exchange::Phases::Pack);
            drop(call);
            self.reports.encode(&context, encoder, step, Tells::Done);
            Ok(())
        })
    }

    /// Encodes the emptying of the cache without a flush. Changes that were not written back are lost.
    ///
    /// # Errors
    /// [`Error::Order`] between forward and backward.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn encode_reset_discarding(&mut self, encoder: &mut wgpu::CommandEncoder) -> Result<(), Error> {
        let context = self.context.clone();
        context.guarded(|| {
            self.not_prefetched("reset")?;
            self.state.not_pending("reset")?;
            let layout = &self.kind.tables.layout;
            let uniform =
                self.context.uniform(&Params::new(&self.kind.config, layout, Mode::Train, Purpose::WriteBack));
            let mut call = Call::begin(&self.context, encoder, "hotrow.reset");
            call.run(&RESET, &[&("params", uniform), &self.kind.tables], &Groups::of(layout.slots(), 256));
            drop(call);
            // A backward that is submitted later finds no lists of its forward.
            for Space { step, .. } in self.kind.train.iter().flatten() {
                encoder.clear_buffer(step, std::mem::offset_of!(Step, number) as u64, Some(16));
            }
            self.reports.encode(&context, encoder, &self.kind.tables.tables, Tells::Done);
            Ok(())
        })
    }
}

/// Encodes the listing of dirty slots, with which each flush begins.
pub(crate) fn encode_collect(call: &mut Call<'_>, params: &Params, tables: &Tables, space: &FlushSpace) {
    let uniform = call.context.uniform(params);
    call.run(&COLLECT, &[&("params", uniform), tables, space], &Groups::of(tables.layout.slots(), 256));
}

impl Rows {
    /// Refuses `call` for a staged table, whose steps need host work and cannot be encoded in one piece.
    fn not_staged(&self, call: &'static str, remedy: &'static str) -> Result<(), Error> {
        if !self.storage.is_staged() {
            return Ok(());
        }
        Err(Error::Unsupported {
            what: call,
            wanted: "a device or mapped table".into(),
            found: "a staged one".into(),
            remedy,
        })
    }
}

impl Kind for Rows {
    type Prefetched = Prefetched;

    fn rows(&self) -> &GroupConfig {
        &self.config
    }

    fn layout(&self) -> &Layout {
        &self.tables.layout
    }

    fn tables(&self) -> &wgpu::Buffer {
        &self.tables.tables
    }

    fn counted(&self, words: &[u32]) -> Vec<Counters> {
        let mut counters = Counters::from_words(words, self.tables.layout.stride());
        counters.truncate(self.config.tables.len());
        counters
    }

    fn set_rate(&mut self, lr: f32) -> Result<(), Error> {
        self.config.set_learning_rate(lr)
    }

    fn moves_records(&self) -> bool {
        self.storage.is_staged()
    }

    fn take_back(group: &mut Group, ends: bool) -> Result<(), Error> {
        group.undo_dropped();
        if group.kind.lost {
            let wanted = "encoders submitted in the order of their calls; make the group again, from a checkpoint";
            let found = "a later step submitted and the forward before it dropped, so that rows were never moved";
            return Err(Error::Order { call: "encode_forward_prefetched", wanted, found });
        }
        if ends && group.state.prefetched().is_some_and(|batch| batch.again) { group.end_decided() } else { Ok(()) }
    }

    fn check_encodable(&self) -> Result<(), Error> {
        let remedy = "call encode_prefetch, submit, fetch, encode_forward_prefetched; or the Embedding methods";
        self.not_staged("encoding a whole forward", remedy)
    }

    fn outcome(group: &Group, mode: Mode) -> Option<&wgpu::Buffer> {
        let Self { train, frozen, .. } = &group.kind;
        let space = if mode == Mode::Train { &train[group.state.last()?.space] } else { frozen };
        space.as_ref().map(|space| &space.step)
    }

    fn readable(&self, context: &Context) -> ReadableBuffers {
        self.readable_buffers(context)
    }

    fn encode(
        group: &mut Group,
        encoder: &mut wgpu::CommandEncoder,
        batch: &Batch<'_>,
        outputs: wgpu::BufferSlice<'_>,
        mode: Mode,
    ) -> Result<u32, Error> {
        let params = group.batch_params(batch, mode)?;
        let indices = params.indices;
        // Checks the batch before the scratch of the last forward is overwritten.
        group.bound_outputs(batch, &params, outputs)?;
        Bound::of(&group.context, &group.dummy, batch, &params)?;
        let train = mode == Mode::Train;
        if train {
            group.state.end_forward(); // its step scratch is overwritten
        }
        let next = group.next_space();
        let DeviceGroup { context, state, dummy, numbers, kind, .. } = group;
        if train {
            void(encoder, &kind.train[1 - next]);
        }
        let space = if train { &mut kind.train[next] } else { &mut kind.frozen };
        let space = grown(space, context, &kind.tables.layout, indices, train)?;
        let (binding, rows) = context.bind_outputs(&kind.config, dummy, batch, &params, outputs)?;
        let bound = Bound::of(context, dummy, batch, &params)?;
        let step = Forward { tables: &kind.tables, space, params: &params, batch: &bound };
        step.encode(context, encoder, Some((&binding, rows)));
        if train {
            let number = numbers.next();
            numbers.encode(context, encoder, (&space.step, WHOLE), number);
            state.forward(Pending { number, ..Pending::new(&params, next, &kind.config) });
        }
        Ok(indices)
    }

    async fn encode_waiting(
        group: &mut Group,
        encoder: &mut wgpu::CommandEncoder,
        batch: &Batch<'_>,
        outputs: wgpu::BufferSlice<'_>,
        mode: Mode,
    ) -> Result<(), Error> {
        match (mode, &group.kind.storage) {
            (_, Storage::Resident) => Self::encode(group, encoder, batch, outputs, mode).map(drop),
            (Mode::Train, Storage::Staged(_)) => {
                group.encode_staged(batch).await?;
                group.carry(encoder, outputs).map(drop)
            }
            (_, Storage::Staged(_)) => group.encode_frozen_staged(encoder, batch, outputs).await,
        }
    }

    fn encode_backward(
        group: &mut Group,
        encoder: &mut wgpu::CommandEncoder,
        grad_outputs: FloatBuffer<'_>,
        scaler: &wgpu::Buffer,
    ) -> Result<(), Error> {
        let context = group.context.clone();
        context.guarded(|| {
            let DeviceGroup { state, rate, numbers, kind, .. } = group;
            let Pending { indices, bags, weighted, space, number, .. } = state.wants_forward("backward")?;
            let rows = batch::output_rows(&kind.config, indices, bags);
            kind.storage.unflushed()?;
            let write_back = kind.storage.reserve_close()?;
            if let Some(space) = kind.train[space].as_ref().filter(|_| indices > 0) {
                let (slice, wanted) = grad_outputs.wanted(u64::from(rows) * u64::from(kind.tables.layout.row.dim));
                let outputs = context.bind("grad_outputs", slice, wanted)?;
                let params = Params::new(&kind.config, &kind.tables.layout, Mode::Train, Purpose::Update)
                    .batch(indices, bags, weighted);
                let params = Params { half_grads: u32::from(grad_outputs.is_half()), ..params };
                let rate = rate.encode(&context, encoder, &Rate::new(&kind.config.optimizer));
                let records = kind.storage.packing(&context);
                numbers.encode(&context, encoder, (&space.step, CONTINUED), number);
                encode_backward(
                    &context,
                    encoder,
                    &kind.tables,
                    space,
                    params,
                    &Gradients { outputs, scaler, rate },
                    &records,
                );
            }
            let step = kind.train[space].as_ref().map(|space| &space.step);
            kind.storage.close(encoder, write_back, step);
            state.end_forward();
            Ok(())
        })
    }

    fn encode_weight_gradient(
        group: &mut Group,
        encoder: &mut wgpu::CommandEncoder,
        bound: &WeightGradient<'_>,
    ) -> Result<(), Error> {
        let Pending { indices, bags, weighted, space, number, .. } = group.state.wants_forward("weight_gradient")?;
        let DeviceGroup { context, numbers, kind: Self { config, tables, train, .. }, .. } = group;
        let Some(space) = &train[space] else { return Ok(()) };
        numbers.encode(context, encoder, (&space.step, CONTINUED), number);
        let params = Params::new(config, &tables.layout, Mode::Train, Purpose::Update).batch(indices, bags, weighted);
        let params = Params { half_grads: bound.half_grads, ..params };
        let call = &mut Call::begin(context, encoder, "hotrow.weight_gradient");
        let uniform = context.uniform(&params);
        let groups = Groups::of(params.indices, tables.layout.at_once());
        call.run_rows(&WEIGHT_GRADIENT, &[&("params", uniform), bound, tables, space], (tables, &params), &groups);
        Ok(())
    }

    async fn encode_read_rows(
        group: &mut Group,
        encoder: &mut wgpu::CommandEncoder,
        rows: &[u32],
        outputs: &wgpu::Buffer,
    ) -> Result<(), Error> {
        group.encode_rows(encoder, rows, Some(outputs)).await.map(drop)
    }

    fn memory(group: &Group) -> MemoryReport {
        group.allocated()
    }

    #[cfg(not(target_family = "wasm"))]
    fn as_embedding(group: &mut Group) -> Option<&mut dyn Embedding> {
        Some(group)
    }
}

/// Has calls that go on with an earlier step find that another one came between them.
pub(crate) fn void(encoder: &mut wgpu::CommandEncoder, earlier: &Option<Space>) {
    if let Some(space) = earlier {
        encoder.clear_buffer(&space.step, offset_of!(Step, number) as u64, Some(4));
    }
}

pub(crate) fn grown<'s>(
    space: &'s mut Option<Space>,
    context: &Context,
    layout: &Layout,
    indices: u32,
    train: bool,
) -> Result<&'s Space, Error> {
    let make = || Space::new(context, layout, indices, train);
    scratch::grown(space, context, |space| space.capacity >= indices, make)
}
