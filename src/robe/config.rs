//! The configuration of a parameter-shared table, and the sizes that follow from it.

use std::{fmt, str::FromStr};

use crate::{
    config::{
        GroupConfig, Init, Optimizer, OptimizerKind, OutOfRange, Pooling, Precision, Rounding, StatePrecision, named,
        setters,
    },
    error::Error,
    record::codec::Noise,
    robe::{
        hash::{PRIME, chunk_start, row_place},
        storage::{BLOCKS, Storage, Words, block_words, state_words},
    },
    table::{abi, batch, rng::Purpose, row::RowLayout},
};

named!(Addressing, "addressing": Hashed = "hashed", Direct = "direct", Rows = "rows");
named!(Backward, "backward": Dense = "dense", Sparse = "sparse", Auto = "auto", Atomic = "atomic");

/// Where the weights of a row lie in the array.
///
/// Example: [`Config`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Addressing {
    /// Each chunk of a row begins where a hash says (ROBE), so rows share weights.
    Hashed,
    /// Element i of linear row g is weight `dim g + i`: rows share no weights, only the scales of their blocks. The array has rows x dim
    /// weights, and a chunk is a row.
    Direct,
    /// A row is a whole row of the array, which a hash chooses (the hashing trick; ROBE, section 2.5): two rows share all of their
    /// weights or none. The array has a multiple of dim weights, and a chunk is a row.
    ///
    /// ```
    /// use hotrow::robe::{Addressing, Config};
    ///
    /// // A million rows of 32 values in an array of 1,000 rows.
    /// let config = Config::new(&[1_000_000], 32, 1000 * 32, 32).with_addressing(Addressing::Rows);
    /// config.check()?;
    /// assert!(config.location(123_456, 0) % 32 == 0);
    /// # Ok::<(), hotrow::Error>(())
    /// ```
    Rows,
}

/// The way in which a backward sums gradients, and the weights that it visits. Only weights that a chunk of the batch covers change, each
/// once. `Dense` and `Sparse` sort the chunks and add the same terms in the order of the batch, so each gives the same bits run
/// after run. Both give the same bits wherever a device's compiler fuses multiplications and additions alike in both.
///
/// Example: [`Config`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backward {
    /// Visits all |M| weights: best where the array is small. A workgroup of a GPU whose share of the weights has few chunks visits only
    /// the weights under these chunks.
    Dense,
    /// Visits the weights that the batch's chunks cover: best where the array is large. If the distinct chunks, laid side by side, would
    /// cover the array (in a packed array the whole blocks that they may reach), a GPU visits all weights, which is faster than finding the
    /// covered ones. The device counts the chunks and decides.
    Sparse,
    /// Takes the faster way as measured, by the number of distinct places where the batch's chunks begin. That number is known after the
    /// sort. On a GPU the faster way is [`Sparse`](Self::Sparse). The CPU takes [`Dense`](Self::Dense) if the array has at most 32 weights
    /// for each distinct place, or at most as many as the longest chunk has if that is more.
    ///
    /// Measured by `hotrow bench robe` on two CPU cores and on a software driver; no GPU was measured yet.
    Auto,
    /// Sorts nothing: adds each gradient atomically to the sum of its weight; then the optimiser visits all |M| weights. Needs |M|
    /// more FP32 values, and with weight decay one more bit for each weight. On a GPU the order of a sum, and so its rounding, differs from run to
    /// run, within (terms - 1) x 2^-24 of the sum of the terms' magnitudes, as for any order. On the CPU the sum follows the order of the indices.
    /// A device created with [`requirements`](crate::requirements) adds natively; another device repeats an exchange until it succeeds. A
    /// gradient that is asked for by itself is sorted, and dense.
    Atomic,
}

/// Tables of one dim that share an array of weights. The hash takes the linear row, `table base + index`, so no two tables read the same
/// weights.
///
/// ```
/// use hotrow::robe::{Backward, Config};
/// use hotrow::{CpuSharedGroup, Optimizer, Precision, prelude::*};
///
/// // Two tables whose rows x 32 share an array 1,000 times smaller than they would be, in INT8.
/// let config = Config::compressed(&[1_000_000, 200_000], 32, 1000.0, 8)?
///     .with_precision(Precision::Int8)
///     .with_backward(Backward::Sparse)
///     .with_optimizer(Optimizer::adagrad(0.05));
/// assert_eq!(config.weights, 1_200_000 * 32 / 1000);
/// let table = CpuSharedGroup::new(config)?;
/// assert!(table.memory().total() < 200_000); // bytes
/// # Ok::<(), hotrow::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Config {
    /// Rows of each table; they take no memory.
    pub tables: Vec<u32>,
    /// The table that each feature reads. Bags come feature by feature, the same number for each. Empty: feature i reads table i.
    pub features: Vec<u32>,
    /// Weights of a row, 1 to 2^24.
    pub dim: u32,
    /// Weights of the shared array, |M|: at least a chunk, at most [`PRIME`], because the hash reaches no weight beyond it.
    pub weights: u32,
    /// Neighbouring elements of a row that lie together in the array, Z: 1 or more. The last chunk of a row is shorter if Z does not divide
    /// dim.
    pub chunk: u32,
    /// Where the weights of a row lie.
    pub addressing: Addressing,
    /// The type in which the array stores weights.
    pub precision: Precision,
    /// The type in which the array stores the optimiser's state: FP32 beside FP32 weights; FP32, FP16 or INT8 beside others. `None`: FP32
    /// beside FP32, else FP16.
    pub state: Option<StatePrecision>,
    /// The rounding of drawn initial values, and of changed weights and states. Random bits are a function of seed, step and place.
    pub rounding: Rounding,
    /// The rounding of weights that the caller writes.
    pub write_rounding: Rounding,
    /// Neighbouring weights that share a scale and a bias (8 bytes) if the precision is an integer one, and whose states share a word of
    /// scales if the states are INT8: a power of two, 16 to 256. When one of them changes, all are rounded again.
    pub block: u32,
    /// The pooling of a bag's rows.
    pub pooling: Pooling,
    /// The update rule: SGD, momentum, element-wise AdaGrad or Adam, with the group's step number for Adam's correction. A weight's gradient
    /// is the sum over all chunks that cover it, and the weight changes once a step. Weights that no chunk covers keep their states.
    pub optimizer: Optimizer,
    /// The effect of an index outside its table.
    pub out_of_range: OutOfRange,
    /// The way in which a backward sums gradients.
    pub backward: Backward,
    /// The initial values of the array.
    pub init: Init,
    /// The seed of the initial values and of stochastic rounding. The hash has constants of its own.
    pub seed: u32,
    /// Most bytes of a window of the array; `None` takes the largest binding of the device. Tests and plans set it, through `internals`.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(crate) window_bytes: Option<u64>,
}

setters!(Config {
    with_tables tables: Vec<u32>,
    with_features features: Vec<u32>,
    with_dim dim: u32,
    with_weights weights: u32,
    with_chunk chunk: u32,
    with_addressing addressing: Addressing,
    with_precision precision: Precision,
    with_state state: Option<StatePrecision>,
    with_rounding rounding: Rounding,
    with_write_rounding write_rounding: Rounding,
    with_block block: u32,
    with_pooling pooling: Pooling,
    with_optimizer optimizer: Optimizer,
    with_out_of_range out_of_range: OutOfRange,
    with_backward backward: Backward,
    with_init init: Init,
    with_seed seed: u32,
});

impl Config {
    /// Tables of `tables[i]` x `dim` that share `weights` FP32 weights in chunks of `chunk`. Defaults of the other fields: sum pooling, SGD
    /// with rate 0.01, initial values uniform within `sqrt(1 / rows)` of the largest table, as in the authors' DLRM; for a packed precision
    /// blocks of 64 and stochastic rounding.
    #[must_use]
    pub fn new(tables: &[u32], dim: u32, weights: u32, chunk: u32) -> Self {
        let most = tables.iter().copied().max().unwrap_or(1).max(1);
        let high = (1.0 / f64::from(most)).sqrt() as f32;
        Self {
            tables: tables.to_vec(),
            features: Vec::new(),
            dim,
            weights,
            chunk,
            addressing: Addressing::Hashed,
            precision: Precision::Fp32,
            state: None,
            rounding: Rounding::Stochastic,
            write_rounding: Rounding::Nearest,
            block: 64,
            pooling: Pooling::Sum,
            optimizer: Optimizer::sgd(0.01),
            out_of_range: OutOfRange::Error,
            backward: Backward::Auto,
            init: Init::Uniform { low: -high, high },
            seed: 0,
            window_bytes: None,
        }
    }

    /// As [`Config::new`], with `compression` times fewer weights than the rows have values, rounded down.
    ///
    /// # Errors
    /// [`Error::Config`] for a compression that is not finite, is below 1, or leaves less than a chunk or more than [`PRIME`] weights.
    pub fn compressed(tables: &[u32], dim: u32, compression: f64, chunk: u32) -> Result<Self, Error> {
        if !(compression.is_finite() && compression >= 1.0) {
            let wanted = "a finite number from 1 on".into();
            return Err(Error::Config { field: "compression", wanted, found: compression.to_string() });
        }
        Self::new(tables, dim, chunk, chunk).check()?; // names dim, tables or chunk if one of them is illegal
        let values = tables.iter().map(|&rows| f64::from(rows)).sum::<f64>() * f64::from(dim);
        let weights = (values / compression).floor();
        if weights > f64::from(PRIME) || weights < f64::from(chunk) {
            let wanted = format!("a compression that leaves {chunk} (one chunk) to {PRIME} weights");
            let found = format!("{compression}, which leaves {weights}");
            return Err(Error::Config { field: "compression", wanted, found });
        }
        let config = Self::new(tables, dim, weights as u32, chunk);
        config.check().map(|()| config)
    }

    /// Tables of `tables[i]` x `dim` whose rows lie one behind the other in the array, each for itself ([`Addressing::Direct`]). In INT8 a
    /// short row takes fewer bytes so than in a cached table, since a block of many rows shares a scale.
    ///
    /// ```
    /// use hotrow::{Precision, robe::Config};
    ///
    /// let rows = Config::direct(&[1000, 24], 2)?.with_precision(Precision::Int8);
    /// assert_eq!((rows.weights, rows.table_bytes()), (2048, 2048 + 32 * 8)); // bytes: a code a weight, 8 a block of 64
    /// # Ok::<(), hotrow::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Config`] for more than [`PRIME`] weights, and as [`check`](Self::check).
    pub fn direct(tables: &[u32], dim: u32) -> Result<Self, Error> {
        let mut config = Self::new(tables, dim, dim, dim).with_addressing(Addressing::Direct);
        config.rows().check()?; // names dim or tables if one of them is illegal
        config.weights = u32::try_from(config.values()).unwrap_or(u32::MAX);
        config.check().map(|()| config)
    }

    /// Number of values of all rows.
    fn values(&self) -> u64 {
        self.rows().total_rows() * u64::from(self.dim)
    }

    /// The place of an element of a linear row in the array.
    #[doc(hidden)]
    #[must_use]
    pub const fn location(&self, row: u32, element: u32) -> usize {
        let robe = self.robe();
        (chunk_start(row_place(row, robe.stride, robe.rows), element / self.chunk, robe.starts) + element % self.chunk)
            as usize
    }

    /// Number of values of all rows, divided by the number of weights.
    #[must_use]
    pub fn compression(&self) -> f64 {
        self.rows().total_rows() as f64 * f64::from(self.dim) / f64::from(self.weights)
    }

    /// Bytes of weights and optimiser state. A weight takes the bits of its precision, and each block of integers 8 bytes more; the last
    /// block has full size. A state (AdaGrad and momentum have one a weight, Adam two) takes the bytes of its type, and INT8 states 4 bytes
    /// more a block.
    #[must_use]
    pub fn table_bytes(&self) -> u64 {
        self.array_bytes().iter().sum()
    }

    /// Bytes of the array, and of its states.
    pub(crate) fn array_bytes(&self) -> [u64; 2] {
        let blocks = u64::from(self.blocks());
        let packed = self.precision != Precision::Fp32;
        let (each, n) = if packed { (self.block, blocks) } else { (1, u64::from(self.weights)) };
        let weights = n * u64::from(each);
        let states = match self.state_precision() {
            StatePrecision::Fp32 => weights * 4 * u64::from(self.states()),
            state => 4 * blocks * u64::from(state_words(state, self.states(), self.block)),
        };
        [4 * n * u64::from(block_words(self.precision, each)), states]
    }

    /// The type of the states, chosen or usual.
    pub(crate) const fn state_precision(&self) -> StatePrecision {
        StatePrecision::chosen(self.precision, self.optimizer.kind, self.state)
    }

    /// Blocks of the array, each with its own scale and bias under an integer precision.
    pub(crate) const fn blocks(&self) -> u32 {
        self.weights.div_ceil(if self.block == 0 { 1 } else { self.block })
    }

    /// The size of the array, scales and biases included, as a share of the rows' size in FP32.
    pub(crate) fn factor(&self) -> f64 {
        let heads = f64::from(self.blocks()) * f64::from(8 * self.precision.format().head_bytes(self.block));
        let bits = f64::from(self.weights) * f64::from(self.precision.bits()) + heads;
        bits / (self.rows().total_rows() as f64 * f64::from(self.dim) * 32.0)
    }

    /// Checks everything that can be checked without a device.
    ///
    /// # Errors
    /// [`Error::Config`] names the field, the wanted value and the found one.
    pub fn check(&self) -> Result<(), Error> {
        let fail = |field, wanted: String, found: String| Err(Error::Config { field, wanted, found });
        if self.optimizer.kind == OptimizerKind::Own {
            return fail(
                "optimizer",
                "a rule of the library: groups alone take a rule of your own".into(),
                "own".into(),
            );
        }
        self.precision.check_trains("in a shared array")?;
        self.rows().check()?;
        if self.chunk == 0 || self.chunk > PRIME {
            return fail("chunk", format!("1 to {PRIME}"), self.chunk.to_string());
        }
        if self.weights > PRIME {
            return fail("weights", format!("at most the prime {PRIME}"), self.weights.to_string());
        }
        if self.weights < self.chunk {
            return fail("weights", format!("at least a chunk of {}", self.chunk), self.weights.to_string());
        }
        if self.addressing == Addressing::Direct && (self.chunk, u64::from(self.weights)) != (self.dim, self.values()) {
            let wanted =
                format!("chunk {} and {} weights, a row and all rows, for direct addressing", self.dim, self.values());
            return fail("addressing", wanted, format!("chunk {} and {} weights", self.chunk, self.weights));
        }
        if self.addressing == Addressing::Rows && (self.chunk != self.dim || !self.weights.is_multiple_of(self.dim)) {
            let wanted = format!("chunk {0} and a multiple of {0} weights, whole rows, for rows addressing", self.dim);
            return fail("addressing", wanted, format!("chunk {} and {} weights", self.chunk, self.weights));
        }
        let kind = self.optimizer.kind;
        if kind.facts().of_row {
            let all = OptimizerKind::ALL.into_iter().filter(|kind| !kind.facts().of_row).map(OptimizerKind::name);
            let all = all.collect::<Vec<_>>().join(", ");
            let wanted = format!("one of {all}: a shared weight belongs to no row");
            return fail("optimizer", wanted, kind.to_string());
        }
        if self.optimizer.counts_rows() || self.optimizer.clip_norm.is_some() {
            let wanted = "the group's step number, and at most clip_value: a shared weight belongs to no row".into();
            let found = if self.optimizer.counts_rows() { "own_count" } else { "clip_norm" };
            return fail("optimizer", wanted, found.into());
        }
        let [fewest, most] = BLOCKS;
        if !self.block.is_power_of_two() || !(fewest..=most).contains(&self.block) {
            return fail("block", format!("a power of two from {fewest} to {most}"), self.block.to_string());
        }
        if self.backward == Backward::Atomic && self.precision != Precision::Fp32 {
            let wanted = "dense, sparse or auto beside packed weights: atomics add to FP32".into();
            return fail("backward", wanted, self.backward.to_string());
        }
        if self.window() == 0 {
            let found = format!("{} window_bytes", self.window_bytes.unwrap_or(0));
            return fail("window_bytes", "room for a block of weights and states".into(), found);
        }
        Ok(())
    }

    /// Checks that `other` can go on with this configuration's array.
    pub(crate) fn same_array(&self, other: &Self) -> Result<(), Error> {
        other.check()?;
        let states = |config: &Self| match config.states() {
            0 => "no state".to_owned(),
            _ => format!("the states of {}", config.optimizer.kind),
        };
        let state = |config: &Self| config.state_precision().to_string();
        let parts = [
            ("weights", self.weights.to_string(), other.weights.to_string()),
            ("precision", self.precision.to_string(), other.precision.to_string()),
            ("block", self.block.to_string(), other.block.to_string()),
            ("optimizer", states(self), states(other)),
            ("state", state(self), state(other)),
            ("window_bytes", self.window().to_string(), other.window().to_string()),
        ];
        match parts.into_iter().find(|(_, wanted, found)| wanted != found) {
            Some((field, wanted, found)) => {
                Err(Error::Config { field, wanted: format!("{wanted}, as the array has"), found })
            }
            None => Ok(()),
        }
    }

    /// States of a weight: 0, 1 or 2.
    pub(crate) const fn states(&self) -> u32 {
        self.optimizer.kind.facts().states.len() as u32
    }

    /// Whether a covered weight moves even if its gradient is 0.
    pub(crate) const fn marks(&self) -> bool {
        self.optimizer.weight_decay != 0.0 || !self.optimizer.kind.facts().rests
    }

    /// The configuration of the rows that the array stands for, by which batches are checked, numbered and looked up.
    #[doc(hidden)]
    #[must_use]
    pub fn rows(&self) -> GroupConfig {
        GroupConfig {
            features: self.features.clone(),
            precision: self.precision,
            state: self.state,
            rounding: self.rounding,
            write_rounding: self.write_rounding,
            pooling: self.pooling,
            optimizer: self.optimizer,
            out_of_range: self.out_of_range,
            init: self.init,
            seed: self.seed,
            ..GroupConfig::new(&self.tables, self.dim)
        }
    }

    /// Chunks of a row.
    pub(crate) const fn chunks(&self) -> u32 {
        // A configuration that was not checked may have a chunk of 0.
        self.dim.div_ceil(if self.chunk == 0 { 1 } else { self.chunk })
    }

    /// The uniform of the stages.
    pub(crate) const fn robe(&self) -> abi::Robe {
        let chunks = self.chunks();
        let window = self.window();
        let window_words = match self.precision {
            Precision::Fp32 => window,
            _ => window.div_ceil(self.block) * block_words(self.precision, self.block),
        };
        abi::Robe {
            dim: self.dim,
            chunk: self.chunk,
            chunks,
            starts: self.weights.saturating_sub(self.chunk) + 1,
            weights: self.weights,
            reach: if self.chunk < self.dim { self.chunk } else { self.dim },
            tail: self.dim.saturating_sub(chunks.saturating_sub(1) * self.chunk),
            dense_from: 0,
            block: self.block,
            block_words: block_words(self.precision, self.block),
            window,
            window_words,
            first: 0,
            stride: if matches!(self.addressing, Addressing::Hashed) { 0 } else { self.dim },
            rows: match self.addressing {
                Addressing::Rows => self.weights / if self.dim == 0 { 1 } else { self.dim },
                _ => 0,
            },
            state_bits: match self.state_precision() {
                _ if self.states() == 0 => 0,
                StatePrecision::Fp32 => 32,
                StatePrecision::Fp16 => 16,
                StatePrecision::Int8 => 8,
            },
            state_words: state_words(self.state_precision(), self.states(), self.block),
            marks: self.marks() as u32,
            given: 0,
        }
    }

    /// The uniform for an array in one piece, whatever its windows on a device.
    pub(crate) const fn undivided(&self) -> abi::Robe {
        abi::Robe { window: self.weights, ..self.robe() }
    }

    /// Weights of a window: all, or as many whole blocks as its bytes hold, of weights as well as of states; 0 if no block fits.
    const fn window(&self) -> u32 {
        let (block, words, states) = match self.precision {
            Precision::Fp32 => (1, 1, self.states()),
            precision => (
                self.block,
                block_words(precision, self.block),
                state_words(self.state_precision(), self.states(), self.block),
            ),
        };
        // The states may take more bytes than the weights.
        let block_bytes = 4 * if states > words { states } else { words } as u64;
        match self.window_bytes {
            Some(bytes) if bytes / block_bytes < self.weights.div_ceil(block) as u64 => {
                (bytes / block_bytes) as u32 * block
            }
            _ => self.weights,
        }
    }

    /// Windows of the array.
    pub(crate) const fn windows(&self) -> u32 {
        self.weights.div_ceil(self.window())
    }

    /// Words of each window: of its weights, and of their states.
    pub(crate) fn window_words(&self, storage: &Storage) -> Vec<Words> {
        let (all, each) = (storage.all(), storage.words_of(self.robe().window));
        let cut = |words: usize, each: usize, k: usize| words.saturating_sub(k * each).min(each);
        let of = |k| Words { memory: cut(all.memory, each.memory, k), states: cut(all.states, each.states, k) };
        (0..self.windows() as usize).map(of).collect()
    }

    /// The same configuration with windows of at most `most` bytes.
    pub(crate) fn bound(&self, most: u64) -> Self {
        Self { window_bytes: Some(self.window_bytes.map_or(most, |bytes| bytes.min(most))), ..self.clone() }
    }

    /// The layout of the weights in memory.
    pub(crate) fn storage(&self) -> Storage {
        let row = RowLayout::new(self.dim, self.precision, self.optimizer.kind);
        Storage::new(self.precision, &self.robe(), self.states(), row.facts)
    }

    /// The source of random bits for weights that are written outside a step.
    pub(crate) fn noise(&self, step: u32, purpose: Purpose) -> Noise {
        Noise::new(&self.rows(), purpose, step)
    }

    /// Checks that 32 bits can number the chunks and outputs of a batch of `indices` indices and `bags` bags.
    ///
    /// # Errors
    /// [`Error::TooLarge`], and [`Error::Config`] for an illegal configuration.
    #[doc(hidden)]
    pub fn check_batch(&self, indices: u32, bags: u32) -> Result<(), Error> {
        self.check()?;
        self.batch_chunks(indices, bags).map(|_| ())
    }

    /// Most weights that a batch of `indices` indices covers.
    #[doc(hidden)]
    #[must_use]
    pub fn most_covered(&self, indices: u32) -> u32 {
        let covered = u64::from(indices) * u64::from(self.chunks()) * u64::from(self.robe().reach);
        covered.min(u64::from(self.weights)) as u32
    }

    /// The number of a batch's chunks; an error unless 31 bits can number their weights and the outputs.
    pub(crate) fn batch_chunks(&self, indices: u32, bags: u32) -> Result<u32, Error> {
        let chunks = u64::from(indices) * u64::from(self.chunks());
        let outputs = u64::from(batch::output_rows(&self.rows(), indices, bags)) * u64::from(self.dim);
        let remedy = "split the batch";
        // Half of what 32 bits hold, because invocations that loop add a stride to a position.
        const MOST: u64 = i32::MAX as u64;
        for (what, words) in [("outputs", outputs), ("batch's chunks", chunks * u64::from(self.robe().reach))] {
            if words > MOST {
                return Err(Error::TooLarge { what, wanted: words * 4, limit: MOST * 4, remedy });
            }
        }
        Ok(chunks as u32)
    }

    /// Sets the states, FP32 side by side, that follow from weights that are given.
    pub(crate) fn begin(&self, weights: &[f32], states: &mut [u32]) {
        if self.optimizer.kind.facts().begins {
            for (weight, words) in weights.iter().zip(states.chunks_exact_mut(2)) {
                self.optimizer.begin(&[*weight], bytemuck::cast_slice_mut(words));
            }
        }
    }

    /// Calls `take` with the words of the initial weights, piece by piece, and the position of each piece's first word; then with the words of the states
    /// that follow from them, if some do, and their position. The words are the same on every machine, and do not depend on dim and chunk.
    pub(crate) fn initial(
        &self,
        storage: &Storage,
        mut take: impl FnMut([usize; 2], [&[u32]; 2]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        use rayon::prelude::*;
        let noise = self.noise(0, Purpose::Init);
        let (mut weights, mut words, mut states) = (Vec::new(), Vec::new(), Vec::new());
        for first in (0..self.weights).step_by(PIECE as usize) {
            weights.resize(PIECE.min(self.weights - first) as usize, 0.0);
            let rows = weights.par_chunks_mut(ROW as usize).enumerate();
            rows.for_each(|(k, row)| self.init.row(self.seed, first / ROW + k as u32, row));
            let [at, end] = [first, first + weights.len() as u32].map(|weight| storage.word(weight));
            words.resize(end - at, 0);
            storage.pack(&noise, first / self.block, &weights, &mut words)?;
            states.clear();
            states.resize(if self.optimizer.kind.facts().begins { 2 * weights.len() } else { 0 }, 0);
            self.begin(&weights, &mut states);
            take([at, 2 * first as usize], [&words, &states])?;
        }
        Ok(())
    }
}

/// Number of weights whose initial values are drawn as one row.
const ROW: u32 = 1 << 14;
/// Number of weights whose words are made at once.
const PIECE: u32 = 128 * ROW;

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(config: &Config) -> (&'static str, String, String) {
        match config.check() {
            Err(Error::Config { field, wanted, found }) => (field, wanted, found),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_cannot_be_is_named() {
        let good = Config::new(&[100, 7], 10, 64, 8);
        good.check().unwrap();
        let wrong = [
            (Config { chunk: 0, ..good.clone() }, "chunk", "0"),
            (Config { chunk: 65, ..good.clone() }, "weights", "64"),
            (Config { weights: 0, ..good.clone() }, "weights", "0"),
            (Config { weights: PRIME + 1, ..good.clone() }, "weights", "2038074744"),
            (Config { dim: 0, ..good.clone() }, "dim", "0"),
            (Config { tables: vec![u32::MAX, 5], ..good.clone() }, "tables", "4294967300"),
            (Config { features: vec![2], ..good.clone() }, "features", "2"),
            (Config { optimizer: Optimizer::row_wise_adagrad(0.1), ..good.clone() }, "optimizer", "row-wise-adagrad"),
            (Config { block: 48, ..good.clone() }, "block", "48"),
            (Config { block: 8, ..good.clone() }, "block", "8"),
            (Config { block: 512, ..good.clone() }, "block", "512"),
            (Config { precision: Precision::Fp16, backward: Backward::Atomic, ..good.clone() }, "backward", "atomic"),
            (good.clone().with_addressing(Addressing::Direct), "addressing", "chunk 8 and 64 weights"),
            (
                Config { weights: 1069, ..Config::direct(&[100, 7], 10).unwrap() },
                "addressing",
                "chunk 10 and 1069 weights",
            ),
            (Config { chunk: 5, ..Config::direct(&[100, 7], 10).unwrap() }, "addressing", "chunk 5 and 1070 weights"),
            (Config::new(&[9], 10, 60, 5).with_addressing(Addressing::Rows), "addressing", "chunk 5 and 60 weights"),
            (Config::new(&[9], 10, 65, 10).with_addressing(Addressing::Rows), "addressing", "chunk 10 and 65 weights"),
            (Config { optimizer: Optimizer { eps: 0.0, ..Optimizer::adagrad(0.1) }, ..good.clone() }, "eps", "0"),
        ];
        for (config, field, found) in wrong {
            let error = refused(&config);
            assert_eq!((error.0, &error.2[..]), (field, found), "{}", error.1);
        }
        for right in [Config { chunk: 64, ..good.clone() }, Config { weights: PRIME, ..good.clone() }, good] {
            right.check().unwrap();
        }
    }

    #[test]
    fn direct_rows_lie_side_by_side() {
        let config = Config::direct(&[3, 4], 5).unwrap();
        let places: Vec<_> = (0..7).flat_map(|row| (0..5).map(move |e| (row, e))).collect();
        assert!(places.iter().enumerate().all(|(at, &(row, e))| config.location(row, e) == at));
        assert_ne!(Config::new(&[3, 4], 5, 35, 5).location(1, 0), 5, "hashed rows lie elsewhere");
        // The last weight that a hash may reach.
        let rows = PRIME / 2;
        assert_eq!(Config::direct(&[rows], 2).unwrap().location(rows - 1, 1), 2 * rows as usize - 1);
        for (rows, dim, wanted) in
            [(rows + 1, 2, "weights"), (u32::MAX - 2, 100, "weights"), (5, 0, "dim"), (0, 2, "tables")]
        {
            match Config::direct(&[rows], dim) {
                Err(Error::Config { field, .. }) => assert_eq!(field, wanted, "{rows} x {dim}"),
                other => panic!("{other:?}"),
            }
        }
    }

    /// SPEC 8: row g is row `((g R3 + R1) mod P) mod rows` of the array; the sums by hand.
    #[test]
    fn hashed_rows_lie_as_a_whole() {
        let config = Config::new(&[u32::MAX - 1], 4, 400, 4).with_addressing(Addressing::Rows);
        config.check().unwrap();
        for (row, place) in [(0, 19), (1, 75), (5, 13)] {
            assert!((0..4).all(|e| config.location(row, e) == 4 * place + e as usize), "row {row}");
        }
        let hashed = config.clone().with_addressing(Addressing::Hashed);
        assert!([0, 1, 5].into_iter().any(|row| hashed.location(row, 0) != config.location(row, 0)));
        // No row begins within another one, and all rows of the array are taken.
        let starts =
            |config: &Config| (0..5000).map(|row| config.location(row, 0)).collect::<std::collections::BTreeSet<_>>();
        assert!(starts(&config).into_iter().eq((0..400).step_by(4)) && starts(&hashed).len() > 300);
        // The last weight that a hash may reach.
        let most = Config::new(&[u32::MAX - 1], 7, PRIME / 7 * 7, 7).with_addressing(Addressing::Rows);
        assert!((0..u32::MAX - 1).step_by(99_991).all(|row| most.location(row, 6) < most.weights as usize));
    }

    #[test]
    fn another_configuration_wants_the_same_array() {
        let good = Config::new(&[100, 7], 10, 64, 8);
        for other in [Config { chunk: 5, ..good.clone() }, Config { tables: vec![9], dim: 3, ..good.clone() }] {
            good.same_array(&other).unwrap();
        }
        let others = [
            (Config { weights: 65, ..good.clone() }, "weights"),
            (Config { optimizer: Optimizer::adagrad(0.1), ..good.clone() }, "optimizer"),
            (Config { chunk: 0, ..good.clone() }, "chunk"),
        ];
        for (other, wanted) in others {
            assert!(matches!(good.same_array(&other), Err(Error::Config { field, .. }) if field == wanted), "{wanted}");
        }
    }

    #[test]
    fn compression_leaves_a_chunk() {
        let config = Config::compressed(&[1000], 64, 1000.0, 32).unwrap();
        assert_eq!((config.weights, config.compression()), (64, 1000.0));
        assert_eq!(Config::compressed(&[1000], 64, 1999.0, 32).unwrap().weights, 32);
        for (rows, compression) in [(1000, 2001.0), (1000, 0.5), (1000, f64::NAN), (1 << 31, 1.0)] {
            match Config::compressed(&[rows], 64, compression, 32) {
                Err(Error::Config { field, .. }) => assert_eq!(field, "compression"),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn bytes_follow_the_precision() {
        let bytes = |precision, optimizer| {
            let config = Config { precision, optimizer, ..Config::new(&[100], 10, 6401, 8) };
            let words = config.storage().all();
            assert_eq!(config.table_bytes(), 4 * (words.memory + words.states) as u64);
            config.table_bytes()
        };
        let blocks = 101;
        for (precision, weights, state) in [
            (Precision::Fp32, 4 * 6401, 4 * 6401),
            (Precision::Fp16, 128 * blocks, 128 * blocks),
            (Precision::Int8, 72 * blocks, 128 * blocks),
            (Precision::Int4, 40 * blocks, 128 * blocks),
            (Precision::Int2, 24 * blocks, 128 * blocks),
        ] {
            assert_eq!(bytes(precision, Optimizer::sgd(0.1)), weights);
            assert_eq!(bytes(precision, Optimizer::adagrad(0.1)), weights + state);
        }
    }

    #[test]
    fn windows_are_whole_blocks_and_hold_weights_and_states() {
        let cut = |precision, optimizer, bytes| {
            let config = Config { precision, optimizer, ..Config::new(&[100], 10, 6401, 8) }.bound(bytes);
            config.check().unwrap();
            (config.windows(), config.robe().window, config.robe().window_words)
        };
        let (sgd, adagrad) = (Optimizer::sgd(0.1), Optimizer::adagrad(0.1));
        assert_eq!(cut(Precision::Fp32, adagrad, u64::MAX), (1, 6401, 6401));
        assert_eq!(cut(Precision::Fp32, adagrad, 6401 * 4), (1, 6401, 6401));
        assert_eq!(cut(Precision::Fp32, sgd, 6400 * 4 + 3), (2, 6400, 6400));
        // 101 blocks of 72 bytes, of 128 of states, and of 128 bytes in FP16.
        assert_eq!(cut(Precision::Int8, sgd, 72 * 101), (1, 6401, 18 * 101));
        assert_eq!(cut(Precision::Int8, sgd, 72 * 101 - 1), (2, 6400, 1800));
        assert_eq!(cut(Precision::Int8, adagrad, 72 * 101), (2, 56 * 64, 56 * 18));
        assert_eq!(cut(Precision::Fp16, adagrad, 50 * 128), (3, 3200, 1600));
        // The largest array, 8.2 GB, in windows of the size that most devices can bind.
        let largest = Config { weights: PRIME, ..Config::new(&[100], 10, 6401, 8) }.bound((1 << 31) - 4);
        assert_eq!((largest.windows(), largest.robe().window), (4, (1 << 29) - 1));
        let none = Config { precision: Precision::Int8, window_bytes: Some(71), ..Config::new(&[100], 10, 6401, 8) };
        assert_eq!(refused(&none).0, "window_bytes");
    }

    #[test]
    fn large_batches_are_refused() {
        let config = Config::new(&[100], 128, 1000, 1);
        assert_eq!(config.batch_chunks(1 << 23, 1).unwrap(), 1 << 30);
        assert!(matches!(config.batch_chunks(1 << 24, 1), Err(Error::TooLarge { what: "batch's chunks", .. })));
        assert!(matches!(config.batch_chunks(1, 1 << 24), Err(Error::TooLarge { what: "outputs", .. })));
        let config = Config { chunk: 128, ..config };
        assert!(config.batch_chunks(1 << 24, 1).is_err(), "2^31 weights");
        assert_eq!(config.batch_chunks((1 << 24) - 1, 1).unwrap(), (1 << 24) - 1);
    }
}
