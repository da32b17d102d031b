//! A parameter-shared table on the CPU: the story of `gpu/robe/`, told with plain functions.

use super::{
    arrange, begin, combine,
    dedup::{DedupTo, dedup},
    linearize,
    memory::{reserved, zeroed},
    merge::CHUNK,
    robe_gather, robe_hash, robe_keys, robe_merge, robe_update,
    sort::{SortJob, SortScratch, SortSpace},
};
use crate::{
    Error, GradSlice, GroupConfig, Layout, ScalerState,
    batch::{self, Pending},
    layout::{Params, Step, Target, count, table_words},
    lookup::Lookup,
    params::Mode,
    rng::Purpose,
    robe::{Config, Counters, Snapshot, check_weights},
};

/// The CPU backend: the oracle of the tests, and what runs without a GPU, on all cores.
#[derive(Debug)]
pub struct Group {
    config: Config,
    /// The rows as if they were there.
    rows: GroupConfig,
    layout: Layout,
    tables: Vec<u32>,
    features: Vec<u32>,
    memory: Vec<f32>,
    states: Vec<f32>,
    train: Option<Space>,
    /// A forward whose backward has not come.
    pending: Option<Pending>,
}

/// What a batch needs between its first stage and its last.
#[derive(Debug)]
struct Space {
    step: Step,
    hashes: Vec<u32>,
    access: Vec<[u32; 2]>,
}

impl Space {
    fn new(indices: u32) -> Result<Self, Error> {
        let n = indices as usize;
        Ok(Self { step: Step::default(), hashes: zeroed("hashes", n)?, access: zeroed("access", n)? })
    }
}

impl Group {
    /// Allocates the array and fills it.
    ///
    /// # Errors
    /// [`Error::Config`], and [`Error::OutOfMemory`] if the host has not the memory.
    pub fn new(config: Config) -> Result<Self, Error> {
        config.check()?;
        let rows = config.rows();
        let layout = Layout::new(&rows, u64::MAX)?;
        let weights = config.weights as usize;
        let mut memory = zeroed("weights", weights)?;
        let states = zeroed("states", if config.has_state() { weights } else { 0 })?;
        config.initial(0, &mut memory);
        let (tables, features) = (table_words(&rows), rows.feature_tables());
        Ok(Self { config, rows, layout, tables, features, memory, states, train: None, pending: None })
    }

    /// The configuration; the learning rate is the newest.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Gives up the backward of the last forward.
    pub fn abandon_backward(&mut self) {
        self.pending = None;
    }

    /// What steps did.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters::from_words(&self.tables)
    }

    /// Everything kept between steps.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            t: self.tables[0],
            weights: self.memory.clone(),
            states: self.states.clone(),
            counters: self.counters(),
        }
    }

    /// Takes over a snapshot of a group of the same configuration, on whatever backend it was taken. A forward no longer waits for its
    /// backward.
    ///
    /// # Errors
    /// [`Error::Length`] names the first part of another size, [`Error::Source`] the first value that is not finite; nothing has changed
    /// then.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        snapshot.check(&self.config)?;
        self.pending = None;
        self.tables = snapshot.counters.words(&self.config, snapshot.t);
        self.memory.copy_from_slice(&snapshot.weights);
        self.states.copy_from_slice(&snapshot.states);
        Ok(())
    }

    /// Replaces the shared weights; the optimiser's state stays.
    ///
    /// # Errors
    /// [`Error::Length`] unless there are |M| of them, [`Error::Source`] for the first that is not finite, [`Error::Order`] between
    /// forward and backward: nothing has changed then.
    pub fn write_weights(&mut self, weights: &[f32]) -> Result<(), Error> {
        batch::not_pending(self.pending, "write_weights")?;
        check_weights(&self.config, weights)?;
        self.memory.copy_from_slice(weights);
        Ok(())
    }

    fn params(&self, mode: Mode) -> Params {
        Params::new(&self.rows, &self.layout, mode, Purpose::Update).floats()
    }

    fn run(
        &mut self,
        indices: &[u32],
        offsets: &[u32],
        weights: Option<&[f32]>,
        mode: Mode,
    ) -> Result<(Vec<f32>, Space), Error> {
        let bags = offsets.len().max(1) as u64 - 1;
        batch::check_shape(&self.rows, indices.len() as u64, bags, weights.map(|w| w.len() as u64))?;
        batch::check_offsets(indices.len() as u64, offsets)?;
        let params = self.params(mode).batch(indices.len() as u32, bags as u32, weights.is_some());
        self.config.batch_chunks(params.indices, params.bags)?;
        if mode == Mode::Train {
            self.pending = None; // what its backward would need goes
        }
        self.carry(&params, indices, offsets, weights.unwrap_or_default())
    }

    /// The stages of forward, in order.
    fn carry(
        &mut self,
        params: &Params,
        indices: &[u32],
        offsets: &[u32],
        weights: &[f32],
    ) -> Result<(Vec<f32>, Space), Error> {
        let rows = if params.pooling == crate::layout::POOL_NONE { params.indices } else { params.bags };
        let mut outputs = zeroed("outputs", rows as usize * self.config.dim as usize)?;
        let mut space = Space::new(params.indices)?;
        let mut keys = zeroed("keys", indices.len())?;
        let Space { step, hashes, access } = &mut space;
        let (features, tables) = (&self.features, &mut self.tables);
        linearize(params, indices, offsets, features, tables, step, &mut keys, access);
        begin(params, indices, offsets, features, tables, step);
        if let Some(error) = batch::fault(&self.rows, step, params.indices) {
            return Err(error);
        }
        robe_hash(params, step, &keys, hashes, tables);
        robe_gather(params, &self.config.robe(), offsets, hashes, weights, &self.memory, access, &mut outputs);
        Ok((outputs, space))
    }

    /// The stages of backward, in order.
    fn move_weights(&mut self, grad_outputs: GradSlice<'_>, scaler: &ScalerState) -> Result<(), Error> {
        let pending = self.pending.ok_or_else(batch::no_forward)?;
        batch::check_grads(&self.rows, pending, grad_outputs.len())?;
        let Pending { indices, bags, weighted } = pending;
        let Some(space) = &mut self.train else { return Err(batch::no_forward()) };
        let n = self.config.batch_chunks(indices, bags)?;
        if n > 0 {
            let robe = self.config.robe();
            let robe = &crate::layout::Robe { dense: u32::from(self.config.dense(n)), ..robe };
            let params = Params::new(&self.rows, &self.layout, Mode::Train, Purpose::Update);
            let params = &params.batch(indices, bags, weighted).chunk_sums(robe);
            let chunks = n as usize;
            let mut keys = zeroed("chunk_keys", chunks)?;
            let mut access = zeroed("chunk_access", chunks)?;
            let (mut segment, mut starts) = (zeroed("segment", chunks)?, zeroed("starts", chunks)?);
            let (mut sorted, mut sort) = (SortSpace::new(chunks)?, SortScratch::new(chunks)?);
            let mut accesses = zeroed("accesses", chunks)?;
            let distinct = chunks.min(robe.starts as usize);
            let mut targets: Vec<Target> = zeroed("targets", distinct + 1)?;
            let mut scratch = zeroed("scratch", 2 * chunks.div_ceil(CHUNK) * params.dim as usize)?;
            let Space { step, hashes, access: by_index } = space;
            robe_keys(params, robe, step, hashes, by_index, &mut keys, &mut access);
            let key_bits = u32::BITS - robe.starts.leading_zeros();
            let job = SortJob { keys: &keys, values: None, count: count::CHUNKS, key_bits };
            let to = &mut DedupTo {
                segment: &mut segment,
                starts: &mut starts,
                segments: count::UNIQUE,
                valid: count::VALID,
            };
            let (_, order) = dedup(step, &job, &mut sorted, &mut sort, to);
            arrange(step, order, &segment, &keys, &keys, &access, &mut accesses, &mut targets, scaler);
            robe_merge(params, robe, &targets, &segment, &accesses, grad_outputs, &mut scratch);
            combine(params, &targets, &segment, &mut scratch);
            let (memory, states) = (&mut self.memory, &mut self.states);
            robe_update(params, robe, &targets, &accesses, grad_outputs, &scratch, memory, states, &mut self.tables);
        }
        self.pending = None;
        Ok(())
    }
}

impl Lookup for Group {
    fn pending(&self) -> bool {
        self.pending.is_some()
    }

    fn forward(&mut self, indices: &[u32], offsets: &[u32], weights: Option<&[f32]>) -> Result<Vec<f32>, Error> {
        let (outputs, space) = self.run(indices, offsets, weights, Mode::Train)?;
        self.train = Some(space);
        let bags = offsets.len() as u32 - 1;
        self.pending = Some(Pending { indices: indices.len() as u32, bags, weighted: weights.is_some() });
        Ok(outputs)
    }

    fn forward_frozen(&mut self, indices: &[u32], offsets: &[u32], weights: Option<&[f32]>) -> Result<Vec<f32>, Error> {
        self.run(indices, offsets, weights, Mode::Frozen).map(|(outputs, _)| outputs)
    }

    fn backward(&mut self, grad_outputs: &[f32]) -> Result<(), Error> {
        self.move_weights(GradSlice::F32(grad_outputs), &ScalerState::unscaled())
    }

    fn backward_scaled(&mut self, grad_outputs: GradSlice<'_>, scaler: &ScalerState) -> Result<(), Error> {
        scaler.decided()?;
        self.move_weights(grad_outputs, &scaler.verdict())
    }

    fn read_rows(&mut self, rows: &[u32]) -> Result<Vec<f32>, Error> {
        batch::check_rows(&self.layout, rows, "read_rows")?;
        let n = rows.len() as u32;
        let mut offsets = reserved("offsets", rows.len() + 1)?;
        offsets.extend(0..=n);
        let params = self.params(Mode::Rows).rows(n);
        self.carry(&params, rows, &offsets, &[]).map(|(outputs, _)| outputs)
    }

    fn set_learning_rate(&mut self, lr: f32) -> Result<(), Error> {
        self.rows.set_learning_rate(lr)?;
        self.config.optimizer.lr = lr;
        Ok(())
    }
}
