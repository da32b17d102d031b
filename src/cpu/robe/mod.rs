//! A parameter-shared table on the CPU: the calls of `gpu/robe/` as plain functions.

pub(crate) mod space;
pub(crate) mod sums;

use crate::{
    config::GroupConfig,
    cpu::stages::{
        cached::linearize,
        robe::{
            robe_blocks, robe_gather, robe_given, robe_hash, robe_scatter, robe_step, robe_update, robe_weight_gradient,
        },
    },
    error::Error,
    host::alloc::{reserved, zeroed},
    lookup::{Lookup, SharedArray, outputs::OutputSlice},
    memory::{Calls, MemoryReport},
    robe::{
        RobeSnapshot, check_gradient, check_weights,
        config::{Backward, Config},
        counter_words, counters_of,
        storage::Storage,
    },
    scaler::GradSlice,
    table::{
        abi::{Feature, Params, Robe, ScalerState, Target, features, table_words},
        batch::{self, Bags},
        counters::Counters,
        layout::Layout,
        params::Mode,
        rng::Purpose,
        step_state::{Pending, StepState},
    },
};
use space::Space;
use std::convert::Infallible;
use sums::Sums;

/// Tables that share one array of weights, on the CPU, on all cores.
///
/// ```
/// use hotrow::{Bags, CpuSharedGroup, Error, Mode, prelude::*, robe};
///
/// // A million rows x 16 in 4,096 weights, read in chunks of 8.
/// let mut table = CpuSharedGroup::new(robe::Config::new(&[1_000_000], 16, 4096, 8))?;
/// let outputs = table.forward(Bags::new(&[999_999], &[0, 1]), Mode::Train)?;
/// table.backward(&outputs)?;
/// assert_eq!(table.counters()?[0].accesses, 1);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct CpuSharedGroup {
    config: Config,
    /// The configuration of the rows that the array stands for.
    rows: GroupConfig,
    layout: Layout,
    tables: Vec<u32>,
    features: Vec<Feature>,
    storage: Storage,
    memory: Vec<u32>,
    states: Vec<u32>,
    /// The sums to which [`Backward::Atomic`] adds gradients; all are 0 between steps.
    scattered: Option<Scattered>,
    train: Option<Space>,
    state: StepState<Infallible>,
}

#[derive(Debug)]
struct Scattered {
    /// One sum for each weight.
    sums: Vec<f32>,
    /// One bit for each weight, if covered weights move without a gradient: whether a chunk of the batch covers it.
    covered: Vec<u32>,
}

impl Scattered {
    /// The sums of a group whose backward is atomic; `None` for any other.
    fn new(config: &Config) -> Result<Option<Self>, Error> {
        if config.backward != Backward::Atomic {
            return Ok(None);
        }
        let marks = if config.marks() { config.weights.div_ceil(32) } else { 0 };
        Ok(Some(Self { sums: zeroed("sums", config.weights as usize)?, covered: zeroed("covered", marks as usize)? }))
    }
}

impl CpuSharedGroup {
    /// Allocates the array and fills it.
    ///
    /// # Errors
    /// [`Error::Config`], [`Error::OutOfMemory`] if the host lacks the memory, and [`Error::Source`] for initial values whose range has no
    /// finite scale.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn new(config: Config) -> Result<Self, Error> {
        config.check()?;
        let rows = config.rows();
        let layout = Layout::new(&rows, u64::MAX)?;
        let storage = config.storage();
        let words = storage.all();
        let (mut memory, mut states) = (zeroed("weights", words.memory)?, zeroed("states", words.states)?);
        config.initial(&storage, |at, [words, begun]| {
            memory[at[0]..][..words.len()].copy_from_slice(words);
            states.iter_mut().skip(at[1]).zip(begun).for_each(|(state, begun)| *state = *begun);
            Ok(())
        })?;
        let (tables, features) = (table_words(&rows), features(&rows));
        let scattered = Scattered::new(&config)?;
        let (train, state) = (None, StepState::Idle);
        Ok(Self { config, rows, layout, tables, features, storage, memory, states, scattered, train, state })
    }

    /// Number of distinct places where chunks begin from which on a batch's backward visits all weights (see [`Backward`]).
    #[doc(hidden)]
    #[must_use]
    pub fn dense_from(&self) -> u32 {
        // Finding the weights of a start costs as much as visiting `PASSED` weights; measured on two cores with chunks of 2 to 32.
        const PASSED: u32 = 32;
        match self.config.backward {
            Backward::Dense | Backward::Atomic => 0,
            Backward::Sparse => u32::MAX,
            Backward::Auto => self.config.weights / self.config.robe().reach.max(PASSED),
        }
    }

    /// Replaces the shared weights, rounded to the array's precision by [`Config::write_rounding`]. The optimiser's state stays; FTRL's y becomes
    /// that of the new weights.
    ///
    /// # Errors
    /// [`Error::Length`] unless there are |M| weights; [`Error::Source`] for the first weight that is not finite, and for the first block
    /// whose range has no finite scale; [`Error::Order`] between forward and backward. After an error nothing has changed.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn write_weights(&mut self, weights: &[f32]) -> Result<(), Error> {
        self.state.not_pending("write_weights")?;
        check_weights(&self.config, weights)?;
        let mut words = zeroed("weights", self.memory.len())?;
        self.storage.pack(&self.config.noise(self.tables[0], Purpose::Write), 0, weights, &mut words)?;
        self.config.begin(weights, &mut self.states);
        self.memory = words;
        Ok(())
    }

    /// Goes on with the same array under another configuration: other tables, features, chunk, pooling, learning rate or backward. Weights,
    /// states and step number stay. The counters stay if the tables are the same; else they start at zero.
    ///
    /// # Errors
    /// [`Error::Config`] for an illegal configuration, or one that needs another array; [`Error::Order`] between forward and backward.
    /// After an error nothing has changed.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn reconfigure(&mut self, config: Config) -> Result<(), Error> {
        self.state.not_pending("reconfigure")?;
        self.config.same_array(&config)?;
        let rows = config.rows();
        let scattered = Scattered::new(&config)?;
        self.layout = Layout::new(&rows, u64::MAX)?;
        if config.tables != self.config.tables {
            let t = self.tables[0];
            self.tables = table_words(&rows);
            self.tables[0] = t;
        }
        self.features = features(&rows);
        (self.config, self.rows, self.train, self.scattered) = (config, rows, None, scattered);
        Ok(())
    }

    fn params(&self, mode: Mode) -> Params {
        Params::new(&self.rows, &self.layout, mode, Purpose::Update).floats()
    }

    fn look_up(&mut self, bags: Bags<'_>, mode: Mode, outputs: &mut [f32]) -> Result<Space, Error> {
        let count = batch::check_slices(&self.rows, bags)?;
        let params = self.params(mode).batch(bags.indices.len() as u32, count, bags.weights.is_some());
        self.config.batch_chunks(params.indices, params.bags)?;
        batch::check_outputs(&self.rows, params.indices, params.bags, outputs.len())?;
        self.carry(&params, bags, outputs)
    }

    /// Runs the stages of forward, in order.
    fn carry(
        &mut self,
        params: &Params,
        Bags { indices, offsets, weights }: Bags<'_>,
        outputs: &mut [f32],
    ) -> Result<Space, Error> {
        let mut space = Space::new(params.indices)?;
        let mut keys = zeroed("keys", indices.len())?;
        let Space { step, hashes, access } = &mut space;
        let (features, tables) = (&self.features, &mut self.tables);
        linearize(params, indices, offsets, features, tables, step, &mut keys, access);
        if let Some(error) = batch::fault(&self.rows, step, params.indices) {
            return Err(error);
        }
        let robe = self.config.undivided();
        robe_hash(params, &robe, step, &keys, hashes, tables);
        robe_gather(
            params,
            &robe,
            &self.storage,
            offsets,
            hashes,
            weights.unwrap_or_default(),
            &self.memory,
            access,
            outputs,
        );
        Ok(space)
    }

    /// Prepares the backward of the last forward for `call`: checks its gradients, and returns the stages' parameters and the number of
    /// chunks.
    fn waiting(&self, grad_outputs: GradSlice<'_>, call: &'static str) -> Result<(Params, Robe, u32), Error> {
        let forward = self.state.wants_forward(call)?;
        batch::check_grads(&self.rows, forward, grad_outputs.len())?;
        let Pending { indices, bags, weighted, .. } = forward;
        let n = self.config.batch_chunks(indices, bags)?;
        let robe = Robe { dense_from: self.dense_from(), ..self.config.undivided() };
        let params = Params::new(&self.rows, &self.layout, Mode::Train, Purpose::Update);
        Ok((params.batch(indices, bags, weighted).chunk_sums(&robe), robe, n))
    }

    /// Runs the backward of the last forward with the decision of a scaler.
    fn move_weights(&mut self, grad_outputs: GradSlice<'_>, scaler: &ScalerState) -> Result<(), Error> {
        let (params, robe, n) = &self.waiting(grad_outputs, "backward")?;
        let (memory, states, tables) = (&mut self.memory, &mut self.states, &mut self.tables);
        let space = self.train.as_mut().filter(|_| *n > 0);
        if let (Some(Space { hashes, access, .. }), Some(Scattered { sums, covered })) = (&space, &mut self.scattered) {
            robe_scatter(params, robe, scaler, hashes, access, grad_outputs, sums, covered);
            robe_step(&self.rows, robe, sums, covered, memory, states, tables);
        } else if let Some(space) = space {
            let Sums { targets, accesses, scratch, .. } = Sums::new(params, robe, *n, space, grad_outputs, scaler)?;
            let update = if self.storage.plain() { robe_update } else { robe_blocks };
            update(
                &self.rows,
                &self.storage,
                params,
                robe,
                &targets,
                &accesses,
                grad_outputs,
                &scratch,
                memory,
                states,
                tables,
            );
        }
        self.state.end_forward();
        Ok(())
    }
}

impl Lookup for CpuSharedGroup {
    fn pending(&self) -> bool {
        self.state.pending().is_some()
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn discard_pending(&mut self) {
        self.state.end_forward();
    }

    fn output_len(&self, indices: usize, bags: usize) -> usize {
        batch::output_len(&self.rows, indices, bags)
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn forward_into(&mut self, bags: Bags<'_>, mode: Mode, outputs: OutputSlice<'_>) -> Result<(), Error> {
        outputs.with_floats(|outputs| {
            self.state.may_look_up(mode)?;
            let space = self.look_up(bags, mode, outputs)?;
            if mode == Mode::Train {
                self.train = Some(space);
                let (indices, weighted) = (bags.indices.len() as u32, bags.weights.is_some());
                let bags = bags.offsets.len() as u32 - 1;
                self.state.forward(Pending { indices, bags, weighted, space: 0, forward_only: false, number: 0 });
            }
            Ok(())
        })
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn backward(&mut self, grad_outputs: &[f32]) -> Result<(), Error> {
        self.move_weights(GradSlice::F32(grad_outputs), &ScalerState::unscaled())
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn backward_scaled(&mut self, grad_outputs: GradSlice<'_>, scaler: &ScalerState) -> Result<(), Error> {
        scaler.decided()?;
        self.move_weights(grad_outputs, &scaler.verdict())
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn weight_gradient(&mut self, bags: Bags<'_>, grad_outputs: &[f32]) -> Result<Vec<f32>, Error> {
        let Bags { indices, offsets, .. } = bags;
        let (params, robe, _) = &self.waiting(GradSlice::F32(grad_outputs), "weight_gradient")?;
        let count = batch::check_slices(&self.rows, bags.with_weights(None))?;
        batch::check_same(self.state.wants_forward("weight_gradient")?, indices.len() as u64, count.into())?;
        let mut found = zeroed("grad_weights", indices.len())?;
        if let Some(Space { access, hashes, .. }) = &self.train {
            robe_weight_gradient(
                params,
                robe,
                &self.storage,
                offsets,
                access,
                hashes,
                &self.memory,
                grad_outputs,
                &mut found,
            );
        }
        Ok(found)
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn read_rows(&mut self, rows: &[u32]) -> Result<Vec<f32>, Error> {
        batch::check_rows(&self.layout, rows, "read_rows")?;
        let n = rows.len() as u32;
        let mut offsets = reserved("offsets", rows.len() + 1)?;
        offsets.extend(0..=n);
        let params = self.params(Mode::Frozen).rows(n);
        let mut outputs = zeroed("outputs", rows.len() * self.config.dim as usize)?;
        self.carry(&params, Bags::new(rows, &offsets), &mut outputs)?;
        Ok(outputs)
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn set_learning_rate(&mut self, lr: f32) -> Result<(), Error> {
        self.rows.set_learning_rate(lr)?;
        self.config.optimizer.lr = lr;
        Ok(())
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn counters(&mut self) -> Result<Vec<Counters>, Error> {
        Ok(counters_of(&self.config, &self.tables))
    }

    /// Without scratch.
    fn memory(&self) -> MemoryReport {
        MemoryReport::planned_robe(&self.config, &self.storage, &Calls::default(), 0)
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn as_shared_array(&mut self) -> Option<&mut dyn SharedArray> {
        Some(self)
    }
}

impl SharedArray for CpuSharedGroup {
    fn config(&self) -> &Config {
        &self.config
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn snapshot(&mut self) -> Result<RobeSnapshot, Error> {
        Ok(RobeSnapshot {
            t: self.tables[0],
            weight_words: self.memory.clone(),
            state_words: self.states.clone(),
            counters: self.counters()?,
        })
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn restore(&mut self, snapshot: &RobeSnapshot) -> Result<(), Error> {
        snapshot.check(&self.config)?;
        self.state.end_forward();
        self.tables = counter_words(&self.config, snapshot.t, &snapshot.counters);
        self.memory.copy_from_slice(&snapshot.weight_words);
        self.states.copy_from_slice(&snapshot.state_words);
        Ok(())
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn gradient(&mut self, grad_outputs: GradSlice<'_>) -> Result<Vec<f32>, Error> {
        let (params, robe, n) = &self.waiting(grad_outputs, "gradient")?;
        let Some(space) = &mut self.train else { return Ok(Vec::new()) };
        Sums::new(params, robe, *n, space, grad_outputs, &ScalerState::unscaled())?.gradient()
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn step_scaled(&mut self, gradient: &[f32], scaler: &ScalerState) -> Result<(), Error> {
        scaler.decided()?;
        self.state.wants_forward("step")?;
        check_gradient(&self.config, gradient)?;
        let params = &Params::new(&self.rows, &self.layout, Mode::Train, Purpose::Update);
        let robe = &self.config.undivided().given();
        let (memory, states, tables) = (&mut self.memory, &mut self.states, &mut self.tables);
        if let Some(Space { step, .. }) = &self.train {
            let (mut accesses, mut targets) = ([[0; 2]], [Target::default(); 2]);
            robe_given(step, &scaler.verdict(), tables, &mut accesses, &mut targets);
            let update = if self.storage.plain() { robe_update } else { robe_blocks };
            let gradient = GradSlice::F32(gradient);
            update(&self.rows, &self.storage, params, robe, &targets, &accesses, gradient, &[], memory, states, tables);
        }
        self.state.end_forward();
        Ok(())
    }
}
