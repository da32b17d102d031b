//! A group of tables on the CPU.

use crate::{
    config::GroupConfig,
    cpu::cached::{
        freqs,
        space::Space,
        tables::{Tables, empty},
    },
    error::Error,
    host::{
        alloc::{reserved, zeroed},
        pages::smaps,
    },
    lookup::{Embedding, Lookup, outputs::OutputSlice},
    memory::{Calls, MemoryReport},
    scaler::GradSlice,
    source::Source,
    table::{
        abi::{Params, ScalerState},
        batch::{self, Bags},
        counters::Counters,
        layout::Layout,
        params::Mode,
        parts::Part,
        pins,
        rng::Purpose,
        step_state::{Pending, StepState, no_prefetch},
    },
    wgsl::check_rule,
};

/// Most bytes of a piece if the configuration does not say.
pub(crate) const PIECE_BYTES: u64 = 2 << 30;

/// Stands in a [`Pending`] for a fetch: only `apply` brings the output rows of its accesses.
pub(crate) const FETCHED: usize = 1;

/// A group of tables on the CPU, on all cores. It needs no GPU. The tests compare the GPU's kernels with it.
///
/// ```
/// use hotrow::{Bags, CpuGroup, Error, GroupConfig, Init, Mode, OutputSlice, prelude::*};
///
/// let config = GroupConfig::new(&[100], 4).with_init(Init::Constant(1.0)).with_cache_rows(32);
/// let mut group = CpuGroup::new(config)?;
/// let mut outputs = [0.0; 4];
/// group.forward_into(Bags::new(&[5, 6], &[0, 2]), Mode::Train, OutputSlice::F32(&mut outputs))?;
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
/// Work runs on the threads of the rayon pool in which the caller runs (`ThreadPool::install`), else of rayon's global pool. On a machine with
/// few cores, give each thread of the pool its own core: Linux may otherwise leave two of them on one core for many calls.
#[derive(Debug)]
pub struct CpuGroup {
    pub(crate) config: GroupConfig,
    pub(crate) tables: Tables,
    /// Step scratch of a forward and its backward.
    pub(crate) space: Option<Space>,
    /// The linear rows of a batch, if some index lies outside its table.
    pub(crate) linear: Vec<u32>,
    pub(crate) state: StepState<Prefetched>,
}

/// A prefetched batch. Nothing can be seen of a step between its prefetch and its forward, and nothing is slow to fetch on the CPU: the
/// forward does all.
#[derive(Debug)]
pub(crate) struct Prefetched {
    params: Params,
    indices: Vec<u32>,
    offsets: Vec<u32>,
    /// Empty if the batch has none.
    weights: Vec<f32>,
}

impl CpuGroup {
    /// Allocates and fills the tables.
    ///
    /// # Errors
    /// [`Error::Config`], and [`Error::OutOfMemory`] if the host lacks the memory.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn new(config: GroupConfig) -> Result<Self, Error> {
        Self::of(config, None)
    }

    /// As [`CpuGroup::new`], with the values of `source`, rounded by [`GroupConfig::write_rounding`], instead of drawn ones ([`GroupConfig::init`]).
    ///
    /// # Errors
    /// As [`CpuGroup::new`]; the errors of `source`; [`Error::Source`] for the first row with a value that is not finite.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn filled(config: GroupConfig, source: &dyn Source) -> Result<Self, Error> {
        Self::of(config, Some(source))
    }

    fn of(config: GroupConfig, source: Option<&dyn Source>) -> Result<Self, Error> {
        let layout = Layout::new(&config, PIECE_BYTES)?;
        layout.log_ways();
        config.own().map(check_rule).transpose()?;
        let tables = Tables::new(&config, layout, source)?;
        Ok(Self { config, tables, space: None, linear: Vec::new(), state: StepState::Idle })
    }

    pub(crate) fn params(&self, mode: Mode, purpose: Purpose) -> Params {
        Params::new(&self.config, &self.tables.layout, mode, purpose)
    }

    /// The parameters of a batch, after its shape is checked.
    fn batch_params(&self, bags: Bags<'_>, mode: Mode) -> Result<Params, Error> {
        let count = batch::check_slices(&self.config, bags)?;
        let (indices, weighted) = (bags.indices.len() as u32, bags.weights.is_some());
        Ok(self.params(mode, Purpose::WriteBack).batch(indices, count, weighted))
    }

    /// Runs the backward of the last forward with the decision of a scaler.
    fn move_rows(&mut self, grad_outputs: GradSlice<'_>, scaler: &ScalerState) -> Result<(), Error> {
        let forward = self.state.wants_forward("backward")?;
        batch::check_grads(&self.config, forward, grad_outputs.len())?;
        let Pending { indices, bags, weighted, space, .. } = forward;
        if space == FETCHED {
            let (wanted, found) = ("apply after a fetch", "the rows of a fetch");
            return Err(Error::Order { call: "backward", wanted, found });
        }
        let params = self.params(Mode::Train, Purpose::Update).batch(indices, bags, weighted);
        if indices > 0 {
            self.update_rows(&params, grad_outputs, scaler)?;
        }
        self.state.end_forward();
        Ok(())
    }
}

/// A copy of a list, if the host has room for it.
fn copied<T: Copy>(what: &'static str, list: &[T]) -> Result<Vec<T>, Error> {
    let mut copy = reserved(what, list.len())?;
    copy.extend_from_slice(list);
    Ok(copy)
}

impl Lookup for CpuGroup {
    fn pending(&self) -> bool {
        self.state.pending().is_some()
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn discard_pending(&mut self) {
        self.count_distinct();
        self.state.end_forward();
    }

    fn output_len(&self, indices: usize, bags: usize) -> usize {
        batch::output_len(&self.config, indices, bags)
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn forward_into(&mut self, bags: Bags<'_>, mode: Mode, outputs: OutputSlice<'_>) -> Result<(), Error> {
        outputs.with_floats(|outputs| {
            self.state.may_look_up(mode)?;
            let params = self.batch_params(bags, mode)?;
            batch::check_outputs(&self.config, params.indices, params.bags, outputs.len())?;
            self.pooled(&params, bags, outputs)
        })
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn backward(&mut self, grad_outputs: &[f32]) -> Result<(), Error> {
        self.move_rows(GradSlice::F32(grad_outputs), &ScalerState::unscaled())
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn backward_scaled(&mut self, grad_outputs: GradSlice<'_>, scaler: &ScalerState) -> Result<(), Error> {
        scaler.decided()?;
        self.move_rows(grad_outputs, &scaler.verdict())
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn read_rows(&mut self, rows: &[u32]) -> Result<Vec<f32>, Error> {
        self.state.not_prefetched("read_rows")?;
        batch::check_rows(&self.tables.layout, rows, "read_rows")?;
        let mut outputs = zeroed("outputs", rows.len() * self.tables.layout.row.dim as usize)?;
        if !rows.is_empty() {
            self.pool_rows(rows, &mut outputs);
        }
        Ok(outputs)
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn counters(&mut self) -> Result<Vec<Counters>, Error> {
        self.state.not_prefetched("counters")?;
        self.count_distinct();
        Ok(Counters::from_words(&self.tables.tables, self.tables.layout.stride()))
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn weight_gradient(&mut self, bags: Bags<'_>, grad_outputs: &[f32]) -> Result<Vec<f32>, Error> {
        let forward = self.state.wants_forward("weight_gradient")?;
        let (indices, bags) = (bags.indices, bags.with_weights(None));
        let count = batch::check_slices(&self.config, bags)?;
        batch::check_same(forward, indices.len() as u64, count.into())?;
        batch::check_grads(&self.config, forward, grad_outputs.len())?;
        let mut found = zeroed("grad_weights", indices.len())?;
        let params = self.params(Mode::Frozen, Purpose::Update).batch(forward.indices, count, forward.weighted);
        self.weight_gradient_of(&params, bags, grad_outputs, &mut found)?;
        Ok(found)
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn set_learning_rate(&mut self, lr: f32) -> Result<(), Error> {
        self.config.set_learning_rate(lr)
    }

    /// Without step scratch.
    fn memory(&self) -> MemoryReport {
        let smaps = smaps();
        let huge_pages = self.tables.records.huge_bytes(&smaps) + self.tables.cache.huge_bytes(&smaps);
        let freq_bits = if self.config.policy.facts().counts { freqs::width(&self.config).bits() } else { 0 };
        let report = MemoryReport::plan_of(&self.config, &self.tables.layout, Calls::default(), freq_bits);
        MemoryReport { huge_pages, ..report }
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn as_embedding(&mut self) -> Option<&mut dyn Embedding> {
        Some(self)
    }
}

impl Embedding for CpuGroup {
    fn config(&self) -> &GroupConfig {
        &self.config
    }

    fn layout(&self) -> &Layout {
        &self.tables.layout
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn prefetch(&mut self, bags: Bags<'_>) -> Result<(), Error> {
        self.state.not_prefetched("prefetch")?;
        let params = self.batch_params(bags, Mode::Train)?;
        let (indices, offsets) = (copied("indices", bags.indices)?, copied("offsets", bags.offsets)?);
        let weights = copied("weights", bags.weights.unwrap_or_default())?;
        self.state.prefetch(Prefetched { params, indices, offsets, weights });
        Ok(())
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn forward_prefetched(&mut self) -> Result<Vec<f32>, Error> {
        let Prefetched { params, .. } = self.state.prefetched().ok_or_else(no_prefetch)?;
        self.state.may_forward()?;
        let mut outputs = zeroed("outputs", self.output_len(params.indices as usize, params.bags as usize))?;
        let batch = self.state.take_prefetched().ok_or_else(no_prefetch)?;
        let Prefetched { params, indices, offsets, weights } = &batch;
        let found = self.pooled(params, Bags::new(indices, offsets).with_weights(Some(weights)), &mut outputs);
        if matches!(found, Err(Error::OutOfMemory { .. })) {
            self.state.prefetch(batch); // the call may be repeated
        }
        found.map(|()| outputs)
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn flush(&mut self) -> Result<(), Error> {
        self.state.not_prefetched("flush")?;
        self.write_back()
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn reset(&mut self) -> Result<(), Error> {
        self.state.not_prefetched("reset")?;
        self.state.not_pending("reset")?;
        self.flush()?;
        self.reset_discarding()
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn reset_discarding(&mut self) -> Result<(), Error> {
        self.state.not_prefetched("reset")?;
        self.state.not_pending("reset")?;
        empty(&self.tables.layout, &mut self.tables.ways);
        Ok(())
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn write_rows(&mut self, rows: &[u32], values: &[f32]) -> Result<(), Error> {
        self.state.not_prefetched("write_rows")?;
        self.state.not_pending("write_rows")?;
        let (ascending, values) = batch::rows_to_write(&self.tables.layout, rows, values)?;
        self.assign(&ascending, &values)
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn pin(&mut self, rows: &[u32], ways: u32) -> Result<Vec<u32>, Error> {
        self.state.not_prefetched("pin")?;
        self.state.not_pending("pin")?;
        batch::check_rows(&self.tables.layout, rows, "pin")?;
        pins::check_padding(&self.config, rows)?;
        self.pin_rows(rows, ways)
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn pinned(&mut self) -> Result<Vec<u32>, Error> {
        self.state.not_prefetched("pinned")?;
        Ok(pins::pinned(&self.tables.layout, &self.tables.ways))
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn resize_cache(&mut self, cache_rows: u32) -> Result<Vec<u32>, Error> {
        self.state.not_prefetched("resize_cache")?;
        self.state.not_pending("resize_cache")?;
        self.resize(cache_rows)
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn read_part(&mut self, part: Part, first_word: u64, out: &mut [u32]) -> Result<(), Error> {
        self.state.not_prefetched("read_part")?;
        self.read_words(part, first_word, out)
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn write_part(&mut self, part: Part, first_word: u64, words: &[u32]) -> Result<(), Error> {
        self.state.not_prefetched("write_part")?;
        self.write_words(part, first_word, words)
    }
}
