//! A group of tables on the CPU: the calls of `gpu/cached/group.rs` as plain functions.

use crate::{
    config::{GroupConfig, Policy},
    cpu::{
        cached::path::{CpuPath, SPACE},
        direct,
        stages::{
            cached::{
                admit, arrange, assign, begin, claim, collect, combine, exchange,
                freqs::in_any_width,
                gather, linearize, locate, merge, probe, reset,
                space::{FlushSpace, Space},
                tables::{Tables, freq_shards, shards},
                touch, update,
                weight_gradient::weight_gradient,
            },
            sort::{
                dedup::{DedupTo, dedup},
                radix::SortJob,
            },
        },
    },
    error::Error,
    host::{
        alloc::{reserved, zeroed},
        pages::smaps,
    },
    lookup::{Embedding, Lookup, LookupKind, outputs::OutputSlice},
    memory::{Calls, MemoryReport},
    scaler::GradSlice,
    source::Source,
    table::{
        batch,
        counters::Counters,
        layout::{Layout, Move, Params, Rate, ScalerState, Shard, Step, count},
        params::Mode,
        parts::Part,
        pins,
        rng::Purpose,
        step_state::{Pending, StepState, no_prefetch},
    },
};

/// Most bytes of a shard if the configuration does not say.
pub(crate) const SHARD_BYTES: u64 = 2 << 30;

/// A group of tables on the CPU, on all cores. It needs no GPU. The tests compare the GPU's kernels with it.
///
/// ```
/// use hotrow::{CpuGroup, Error, GroupConfig, Init, prelude::*};
///
/// let config = GroupConfig::new(&[100], 4).with_init(Init::Constant(1.0)).with_cache_rows(32);
/// let mut group = CpuGroup::new(config)?;
/// let mut outputs = [0.0; 4];
/// group.forward_into(&[5, 6], &[0, 2], None, &mut outputs)?;
/// assert_eq!(outputs, [2.0; 4]);
/// group.backward(&[0.5; 4])?; // SGD at 0.01
/// assert_eq!(group.read_rows(&[5])?, [1.0 - 0.01 * 0.5; 4]);
/// assert_eq!(group.counters()?[0].admitted, 2);
/// # Ok::<(), Error>(())
/// ```
///
/// The same batches give the same tags, stamps, frequencies, flags and counters as in [`crate::Group`]. The placement is ignored: all
/// tables are in host memory.
///
/// The threads are those of the rayon pool in which the caller runs (`ThreadPool::install`), else of rayon's global pool. On a machine with
/// few cores, give each thread of the pool its own core: Linux may otherwise leave two of them on one core for many calls.
#[derive(Debug)]
pub struct CpuGroup {
    pub(crate) config: GroupConfig,
    pub(crate) tables: Tables,
    /// Step scratch of training steps. There are two, so that a batch can be prefetched while the last one waits for its backward.
    train: [Option<Space>; 2],
    frozen: Option<Space>,
    /// Step scratch of the direct path.
    pub(crate) direct: Option<direct::space::Space>,
    /// The linear rows of a batch on the direct path, if some index lies outside its table.
    pub(crate) linear: Vec<u32>,
    pub(crate) path: CpuPath,
    pub(crate) flush: Option<FlushSpace>,
    pub(crate) state: StepState<Prefetched>,
}

/// A batch whose step is decided and not yet carried out.
#[derive(Debug)]
pub(crate) struct Prefetched {
    params: Params,
    offsets: Vec<u32>,
    weights: Option<Vec<f32>>,
    /// The index of the batch's step scratch.
    space: usize,
}

/// A batch in the caller's slices. `weights` is empty if the batch has none.
struct Batch<'a> {
    indices: &'a [u32],
    offsets: &'a [u32],
    weights: &'a [f32],
}

impl CpuGroup {
    /// Allocates and fills the tables.
    ///
    /// # Errors
    /// [`Error::Config`], and [`Error::OutOfMemory`] if the host lacks the memory.
    pub fn new(config: GroupConfig) -> Result<Self, Error> {
        Self::of(config, None)
    }

    /// As [`CpuGroup::new`], with the values of `source` instead of those of [`GroupConfig::init`].
    ///
    /// # Errors
    /// As [`CpuGroup::new`]; the errors of `source`; [`Error::Source`] for the first row with a value that is not finite.
    pub fn filled(config: GroupConfig, source: &dyn Source) -> Result<Self, Error> {
        Self::of(config, Some(source))
    }

    fn of(config: GroupConfig, source: Option<&dyn Source>) -> Result<Self, Error> {
        let layout = Layout::new(&config, SHARD_BYTES)?;
        let tables = Tables::new(&config, layout, source)?;
        Ok(Self {
            config,
            tables,
            train: [None, None],
            frozen: None,
            direct: None,
            linear: Vec::new(),
            path: CpuPath::default(),
            flush: None,
            state: StepState::Idle,
        })
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &GroupConfig {
        &self.config
    }

    /// The bytes that the group has allocated, by purpose, without step scratch.
    #[must_use]
    pub fn memory(&self) -> MemoryReport {
        let smaps = smaps();
        let huge_pages = self.tables.records.huge_bytes(&smaps) + self.tables.cache.huge_bytes(&smaps);
        let freq_bytes = u64::from(self.config.counter_bits.bits() / 8);
        let report = MemoryReport::plan_of(&self.config, &self.tables.layout, Calls::default(), freq_bytes);
        MemoryReport { huge_pages, ..report }
    }

    /// Chooses how the group computes from its next forward on. The results are the same bits.
    #[must_use]
    pub fn with_path(mut self, path: CpuPath) -> Self {
        self.count_distinct();
        self.path = path;
        self
    }

    /// Gives up the backward of the last forward, so that rows can be written or the cache reset.
    pub fn abandon_backward(&mut self) {
        self.count_distinct();
        self.state.end_forward();
    }

    pub(crate) fn params(&self, mode: Mode, purpose: Purpose) -> Params {
        Params::new(&self.config, &self.tables.layout, mode, purpose)
    }

    /// The parameters of a batch, after its shape is checked.
    fn batch_params(
        &self,
        indices: &[u32],
        offsets: &[u32],
        weights: Option<&[f32]>,
        mode: Mode,
    ) -> Result<Params, Error> {
        let bags = batch::check_slices(&self.config, indices, offsets, weights)?;
        Ok(self.params(mode, Purpose::WriteBack).batch(indices.len() as u32, bags, weights.is_some()))
    }

    fn check_outputs(&self, params: &Params, outputs: &[f32]) -> Result<(), Error> {
        batch::check_outputs(&self.config, params.indices, params.bags, outputs.len())
    }

    /// Carries out the step that was decided in scratch `space`.
    fn carry_out(
        &mut self,
        space: usize,
        params: &Params,
        batch: &Batch<'_>,
        outputs: &mut [f32],
    ) -> Result<(), Error> {
        self.state.end_forward();
        let Some(lists) = &mut self.train[space] else { return Ok(()) };
        carry(&mut self.tables, lists, params, batch, Some(outputs));
        match batch::fault(&self.config, &lists.step, params.indices) {
            Some(error) => Err(error),
            None => {
                self.state.forward(Pending::new(params, space));
                Ok(())
            }
        }
    }

    /// Runs the backward of the last forward with the decision of a scaler.
    fn move_rows(&mut self, grad_outputs: GradSlice<'_>, scaler: &ScalerState) -> Result<(), Error> {
        let forward = self.state.wants_forward("backward")?;
        batch::check_grads(&self.config, forward, grad_outputs.len())?;
        let Pending { indices, bags, weighted, space } = forward;
        let params = self.params(Mode::Train, Purpose::Update).batch(indices, bags, weighted);
        if space == SPACE {
            self.update_rows(&params, &Rate::new(&self.config.optimizer), grad_outputs, scaler);
        } else if let Some(space) = self.train[space].as_mut().filter(|_| indices > 0) {
            backward(&mut self.tables, space, (params, &Rate::new(&self.config.optimizer)), grad_outputs, scaler);
        }
        self.state.end_forward();
        Ok(())
    }

    /// Looks up linear rows with the frozen step scratch, one output row for each.
    fn look_up(&mut self, rows: &[u32], outputs: Option<&mut [f32]>) -> Result<Params, Error> {
        batch::check_shape(&self.config, rows.len() as u64, 0, None)?;
        let n = rows.len() as u32;
        let params = self.params(Mode::Frozen, Purpose::Write).rows(n);
        let mut offsets = reserved("offsets", rows.len() + 1)?;
        offsets.extend(0..=n);
        let space = grown(&mut self.frozen, &self.tables.layout, n, false)?;
        let batch = Batch { indices: rows, offsets: &offsets, weights: &[] };
        decide(&mut self.tables, space, &params, &batch);
        carry(&mut self.tables, space, &params, &batch, outputs);
        Ok(params)
    }
}

/// Decides the step (SPEC 3, steps 1 to 4), stage by stage. No row moves.
fn decide(tables: &mut Tables, space: &mut Space, params: &Params, batch: &Batch<'_>) {
    let Batch { indices, offsets, .. } = *batch;
    space.step = Step::default();
    let step = &mut space.step;
    let (layout, features) = (&tables.layout, &tables.features);
    let policy = if tables.freqs.is_empty() { Policy::Lru } else { Policy::Lfu };
    linearize(params, indices, offsets, features, &mut tables.tables, step, &mut space.keys, &mut space.access);
    begin(params, indices, offsets, features, &mut tables.tables, step);
    if step.error != 0 {
        return;
    }
    if params.indices > 0 {
        let train = params.mode == Mode::Train as u32;
        probe(
            params,
            step,
            &space.keys,
            &tables.ways,
            &mut space.places,
            &mut space.miss_keys,
            &mut space.miss_index,
            &mut tables.tables,
        );
        if train && layout.sets > 0 {
            in_any_width!(&mut tables.freqs, freqs => for (shard, freqs) in freq_shards(layout, policy, freqs) {
                let (ways, counters) = (&mut tables.ways, &mut tables.tables);
                touch(params, &shard, step, &space.keys, &space.places, ways, freqs, counters);
            });
        }
        let missed = SortJob {
            keys: &space.miss_keys,
            values: Some(&space.miss_index),
            count: count::MISSED,
            key_bits: layout.miss_key_bits(),
        };
        let to = &mut DedupTo {
            segment: &mut space.segment,
            starts: &mut space.starts,
            segments: count::MOVES,
            valid: count::VALID,
        };
        let (_, order) = dedup(step, &missed, &mut space.sorted, &mut space.sort, to);
        in_any_width!(&mut tables.freqs, freqs => for (shard, freqs) in freq_shards(layout, policy, freqs) {
            let (unique, moves) = (&mut space.unique, &mut space.moves);
            let counters = &mut tables.tables;
            claim(params, &shard, step, &space.keys, order, &space.starts, unique, moves, freqs, counters);
        });
        if params.admits() {
            admit(params, step, &mut space.unique, &mut space.moves, &mut tables.ways, &mut tables.tables);
        }
        let (ways, places) = (&tables.ways, &mut space.places);
        locate(params, step, &space.keys, order, &space.segment, &space.unique, ways, places);
    }
}

/// Carries the decisions out (SPEC 3, steps 5 and 6): moves rows, and pools bags.
fn carry(tables: &mut Tables, space: &mut Space, params: &Params, batch: &Batch<'_>, outputs: Option<&mut [f32]>) {
    let Batch { offsets, weights, .. } = *batch;
    let step = &space.step;
    if step.error != 0 {
        return;
    }
    if params.indices > 0 {
        let phases = Shard::UNPACK | if params.admits() { Shard::PACK } else { 0 };
        exchange_all(tables, params, step, &space.moves, &mut space.scratch, phases);
    }
    if let Some(outputs) = outputs {
        gather(params, offsets, &space.places, weights, &tables.cache, &space.scratch, &mut space.access, outputs);
    }
}

/// Carries out a list of Moves in every shard. If there are several shards, all of them pack before any unpacks.
pub(crate) fn exchange_all(
    tables: &mut Tables,
    params: &Params,
    step: &Step,
    moves: &[Move],
    scratch: &mut [f32],
    phases: u32,
) {
    let Tables { layout, records, cache, ways, tables, .. } = tables;
    let rounds = if layout.shards == 1 { [phases, 0] } else { [phases & Shard::PACK, phases & Shard::UNPACK] };
    for phases in rounds.into_iter().filter(|&phases| phases != 0) {
        for (shard, records) in shards(layout, records) {
            exchange(params, &layout.shard(shard, phases), step, moves, records, cache, scratch, ways, tables);
        }
    }
}

/// The stages of backward, in order (SPEC 3).
fn backward(
    tables: &mut Tables,
    space: &mut Space,
    (params, rate): (Params, &Rate),
    grad_outputs: GradSlice<'_>,
    scaler: &ScalerState,
) {
    let params = &Params { partials: space.partials, ..params };
    let layout = &tables.layout;
    // Each row has one place and each place one row, so either can be the sort key. The one that takes fewer passes is sorted.
    let (by_row, by_place) = (layout.row_bits(), layout.place_bits(params.indices));
    let (keys, key_bits) =
        if by_place.div_ceil(8) < by_row.div_ceil(8) { (&space.places, by_place) } else { (&space.keys, by_row) };
    let job = SortJob { keys, values: None, count: count::INDICES, key_bits };
    let to = &mut DedupTo {
        segment: &mut space.segment,
        starts: &mut space.starts,
        segments: count::UNIQUE,
        valid: count::VALID,
    };
    let (_, order) = dedup(&mut space.step, &job, &mut space.sorted, &mut space.sort, to);
    let Space { segment, accesses, targets, scratch, .. } = space;
    arrange(&space.step, order, segment, &space.keys, &space.places, &space.access, accesses, targets, scaler);
    merge(params, targets, segment, accesses, grad_outputs, scratch);
    combine(params, targets, segment, scratch);
    let Tables { records, cache, ways, tables: counters, .. } = tables;
    for (shard, records) in shards(layout, records) {
        let shard = layout.shard(shard, Shard::PACK);
        update(params, &shard, targets, accesses, grad_outputs, records, cache, scratch, ways, counters, rate);
    }
}

fn grown<'s>(space: &'s mut Option<Space>, layout: &Layout, indices: u32, train: bool) -> Result<&'s mut Space, Error> {
    // The smaller scratch is freed before the larger one is allocated.
    match space.take_if(|space| space.capacity >= indices) {
        Some(enough) => Ok(space.insert(enough)),
        None => {
            *space = None;
            Ok(space.insert(Space::new(layout, indices, train)?))
        }
    }
}

impl Lookup for CpuGroup {
    fn pending(&self) -> bool {
        self.state.pending().is_some()
    }

    fn output_len(&self, indices: usize, bags: usize) -> usize {
        batch::output_len(&self.config, indices, bags)
    }

    fn run(
        &mut self,
        indices: &[u32],
        offsets: &[u32],
        weights: Option<&[f32]>,
        mode: Mode,
        outputs: OutputSlice<'_>,
    ) -> Result<(), Error> {
        outputs.with_floats(|outputs| {
            let train = mode == Mode::Train;
            self.state.not_prefetched(if train { "forward" } else { "forward_frozen" })?;
            let params = self.batch_params(indices, offsets, weights, mode)?;
            self.check_outputs(&params, outputs)?;
            if train {
                self.count_distinct();
                self.state.end_forward(); // its step scratch is overwritten
            }
            let batch = Batch { indices, offsets, weights: weights.unwrap_or_default() };
            if self.pooled(&params, (indices, offsets, batch.weights), outputs)? {
                return Ok(());
            }
            let space = if train { &mut self.train[0] } else { &mut self.frozen };
            let space = grown(space, &self.tables.layout, params.indices, train)?;
            decide(&mut self.tables, space, &params, &batch);
            if train {
                return self.carry_out(0, &params, &batch, outputs);
            }
            carry(&mut self.tables, space, &params, &batch, Some(outputs));
            batch::fault(&self.config, &space.step, params.indices).map_or(Ok(()), Err)
        })
    }

    fn backward(&mut self, grad_outputs: &[f32]) -> Result<(), Error> {
        self.move_rows(GradSlice::F32(grad_outputs), &ScalerState::unscaled())
    }

    fn backward_scaled(&mut self, grad_outputs: GradSlice<'_>, scaler: &ScalerState) -> Result<(), Error> {
        scaler.decided()?;
        self.move_rows(grad_outputs, &scaler.verdict())
    }

    fn read_rows(&mut self, rows: &[u32]) -> Result<Vec<f32>, Error> {
        self.state.not_prefetched("read_rows")?;
        batch::check_rows(&self.tables.layout, rows, "read_rows")?;
        let mut outputs = zeroed("outputs", rows.len() * self.tables.layout.row.dim as usize)?;
        if !rows.is_empty() {
            self.look_up(rows, Some(&mut outputs))?;
        }
        Ok(outputs)
    }

    fn counters(&mut self) -> Result<Vec<Counters>, Error> {
        self.state.not_prefetched("counters")?;
        self.count_distinct();
        Ok(Counters::from_words(&self.tables.tables, self.tables.layout.stride()))
    }

    fn weight_gradient(&mut self, indices: &[u32], offsets: &[u32], grad_outputs: &[f32]) -> Result<Vec<f32>, Error> {
        let forward = self.state.wants_forward("weight_gradient")?;
        let bags = batch::check_slices(&self.config, indices, offsets, None)?;
        batch::check_same(forward, indices.len() as u64, bags.into())?;
        batch::check_grads(&self.config, forward, grad_outputs.len())?;
        let mut found = zeroed("grad_weights", indices.len())?;
        let params = self.params(Mode::Frozen, Purpose::Update).batch(forward.indices, bags, forward.weighted);
        if forward.space == SPACE {
            self.weight_gradient_of(&params, (indices, offsets), grad_outputs, &mut found)?;
        } else if let Some(space) = self.train[forward.space].as_ref().filter(|_| forward.indices > 0) {
            let Space { access, places, scratch, .. } = space;
            weight_gradient(&params, offsets, access, places, &self.tables.cache, scratch, grad_outputs, &mut found);
        }
        Ok(found)
    }

    fn set_learning_rate(&mut self, lr: f32) -> Result<(), Error> {
        self.config.set_learning_rate(lr)
    }

    fn memory(&self) -> MemoryReport {
        self.memory()
    }

    fn kind(&mut self) -> LookupKind<'_> {
        LookupKind::Rows(self)
    }
}

impl Embedding for CpuGroup {
    fn config(&self) -> &GroupConfig {
        &self.config
    }

    fn layout(&self) -> &Layout {
        &self.tables.layout
    }

    fn prefetch(&mut self, indices: &[u32], offsets: &[u32], weights: Option<&[f32]>) -> Result<(), Error> {
        self.state.not_prefetched("prefetch")?;
        self.count_distinct();
        let params = self.batch_params(indices, offsets, weights, Mode::Train)?;
        let space = self.state.next_space();
        let lists = grown(&mut self.train[space], &self.tables.layout, params.indices, true)?;
        decide(&mut self.tables, lists, &params, &Batch { indices, offsets, weights: &[] });
        let (offsets, weights) = (offsets.to_vec(), weights.map(<[f32]>::to_vec));
        self.state.prefetch(Prefetched { params, offsets, weights, space });
        Ok(())
    }

    fn forward_prefetched(&mut self) -> Result<Vec<f32>, Error> {
        // Before the batch is taken: a call that finds no memory for its outputs may be repeated.
        let Prefetched { params, .. } = self.state.prefetched().ok_or_else(no_prefetch)?;
        let mut outputs = zeroed("outputs", self.output_len(params.indices as usize, params.bags as usize))?;
        let Prefetched { params, offsets, weights, space } = self.state.take_prefetched().ok_or_else(no_prefetch)?;
        let batch = Batch { indices: &[], offsets: &offsets, weights: weights.as_deref().unwrap_or_default() };
        self.carry_out(space, &params, &batch, &mut outputs)?;
        Ok(outputs)
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.state.not_prefetched("flush")?;
        let params = self.params(Mode::Train, Purpose::WriteBack);
        let tables = &mut self.tables;
        let layout = &tables.layout;
        if layout.sets == 0 {
            return Ok(());
        }
        let space = match &mut self.flush {
            Some(space) => space,
            none => none.insert(FlushSpace::new(layout)?),
        };
        space.step = Step::default();
        collect(&params, &mut space.step, &tables.ways, &mut space.moves, &tables.tables);
        let FlushSpace { step, moves } = space;
        exchange_all(tables, &params, step, moves, &mut [], Shard::PACK);
        Ok(())
    }

    fn reset(&mut self) -> Result<(), Error> {
        self.state.not_prefetched("reset")?;
        self.state.not_pending("reset")?;
        self.flush()?;
        self.reset_discarding()
    }

    fn reset_discarding(&mut self) -> Result<(), Error> {
        self.state.not_prefetched("reset")?;
        self.state.not_pending("reset")?;
        reset(&self.params(Mode::Train, Purpose::WriteBack), &mut self.tables.ways);
        Ok(())
    }

    fn write_rows(&mut self, rows: &[u32], values: &[f32]) -> Result<(), Error> {
        self.state.not_prefetched("write_rows")?;
        self.state.not_pending("write_rows")?;
        let (ascending, values) = batch::rows_to_write(&self.tables.layout, rows, values)?;
        if rows.is_empty() {
            return Ok(());
        }
        let params = self.look_up(&ascending, None)?;
        let (tables, Some(space)) = (&mut self.tables, &mut self.frozen) else { return Ok(()) };
        assign(
            &params,
            &space.keys,
            &space.places,
            &values,
            &mut tables.cache,
            &mut space.scratch,
            &mut tables.ways,
            &mut space.moves,
            &mut tables.tables,
        );
        exchange_all(tables, &params, &space.step, &space.moves, &mut space.scratch, Shard::PACK);
        Ok(())
    }

    fn pin(&mut self, rows: &[u32], ways: u32) -> Result<Vec<u32>, Error> {
        self.state.not_prefetched("pin")?;
        self.state.not_pending("pin")?;
        batch::check_rows(&self.tables.layout, rows, "pin")?;
        self.pin_rows(rows, ways)
    }

    fn pinned(&mut self) -> Result<Vec<u32>, Error> {
        self.state.not_prefetched("pinned")?;
        Ok(pins::pinned(&self.tables.layout, &self.tables.ways))
    }

    fn resize_cache(&mut self, cache_rows: u32) -> Result<Vec<u32>, Error> {
        self.state.not_prefetched("resize_cache")?;
        self.state.not_pending("resize_cache")?;
        self.resize(cache_rows)
    }

    fn read_part(&mut self, part: Part, first_word: u64, out: &mut [u32]) -> Result<(), Error> {
        self.state.not_prefetched("read_part")?;
        self.read_words(part, first_word, out)
    }

    fn write_part(&mut self, part: Part, first_word: u64, words: &[u32]) -> Result<(), Error> {
        self.state.not_prefetched("write_part")?;
        self.write_words(part, first_word, words)
    }
}
