//! The uniform of a call, made from configuration and layout: the same on both backends.

use crate::{
    config::{GroupConfig, Optimizer, OutOfRange, PolicyFacts, Pooling, Rounding},
    rules::OwnRule,
    table::{
        abi::{NONE, Params, Rate, Robe},
        layout::Layout,
        rng::Purpose,
    },
};

/// What a forward changes.
///
/// Example: [`OutputSlice`](crate::OutputSlice).
// `MODE_*` in `shaders/shared/common.wgsl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Mode {
    /// A step of training, which may be followed by its backward.
    Train = 0,
    /// Nothing: evaluation, inference.
    Frozen = 1,
}

/// The value of [`Params::mode`] for a frozen forward whose indices are linear rows.
pub(crate) const MODE_ROWS: u32 = 2;

impl Params {
    /// What sets the group's policy apart.
    pub(crate) const fn policy_facts(&self) -> PolicyFacts {
        PolicyFacts::of_bits(self.policy)
    }

    /// Whether the call admits rows and evicts others for them.
    pub(crate) const fn admits(&self) -> bool {
        self.trains() && self.sets > 0 && self.policy_facts().admits
    }

    /// Whether the call is a step of training.
    pub(crate) const fn trains(&self) -> bool {
        self.mode == Mode::Train as u32
    }

    /// Whether a bag's rows are averaged.
    pub(crate) const fn averages(&self) -> bool {
        self.pooling == Pooling::Mean as u32
    }

    /// Whether a row is multiplied by a factor before it is added to its bag: the weight of its index, or one part of the bag's rows.
    pub(crate) const fn has_factors(&self) -> bool {
        self.weighted == 1 || self.averages()
    }

    /// Whether each row has a counter.
    pub(crate) const fn counts_uses(&self) -> bool {
        self.freq_bits > 0
    }

    /// Whether the counters of rows are halved as accesses pass.
    pub(crate) const fn ages(&self) -> bool {
        self.policy_facts().ages && self.sets > 0 && (self.shares > 0 || self.fold < u32::BITS - 1)
    }

    pub(crate) fn new(config: &GroupConfig, layout: &Layout, mode: Mode, purpose: Purpose) -> Self {
        let optimizer = &config.optimizer;
        let (facts, [hyper0, hyper1, hyper2, hyper3]) =
            (config.facts(), config.own().map_or(optimizer.hyper(), OwnRule::hyper));
        let spread = layout.spread();
        Self {
            indices: 0,
            bags: 0,
            // The number of features, until `batch` sets the value.
            bags_per_feature: config.feature_count(),
            tables: config.tables.len() as u32,
            mode: mode as u32,
            out_of_range: match config.out_of_range {
                OutOfRange::Error => 0,
                OutOfRange::Clamp => 1,
                OutOfRange::Skip => 2,
            },
            pooling: config.pooling as u32,
            weighted: 0,
            sets: spread.sets,
            slots: layout.slots(),
            policy: config.policy.facts().bits(),
            seed: config.seed,
            dim: layout.row.dim,
            bits: layout.row.precision.bits(),
            format: layout.row.precision as u32,
            stochastic: u32::from(purpose.rounding(config) == Rounding::Stochastic),
            state: layout.row.state,
            state_bits: layout.row.state_bits,
            facts: layout.row.facts,
            state_word: layout.row.state_word,
            payload_half: layout.row.payload_half,
            record_words: layout.row.record_words,
            row_quads: layout.row.row_quads,
            optimizer: optimizer.kind as u32,
            each: facts.states.len() as u32,
            corrects: u32::from(facts.corrects),
            begins: u32::from(facts.begins),
            purpose: purpose as u32,
            total_rows: layout.total_rows,
            hyper0,
            hyper1,
            hyper2,
            hyper3,
            weight_decay: if optimizer.decoupled { 0.0 } else { optimizer.weight_decay },
            lanes: layout.row.lanes,
            partials: 0,
            window_slots: layout.window_slots,
            half_grads: 0,
            random_bits: config.random_bits.bits(),
            freq_max: config.most_uses(),
            zero: 0,
            scalars: layout.row.scalars,
            shrink: if optimizer.decoupled { optimizer.weight_decay } else { 0.0 },
            own_count: u32::from(optimizer.counts_rows()),
            clip_value: optimizer.clip_value.unwrap_or_default(),
            clip_norm: optimizer.clip_norm.unwrap_or_default(),
            row_shift: config.stripe.shift,
            row_first: config.stripe.first,
            padded: if config.padding.iter().any(Option::is_some) { config.feature_count() } else { 0 },
            parts: spread.parts(),
            fold: spread.fold,
            multiplier: spread.multiplier,
            spare: spread.spare,
            // Keys of shares have fewer bits than 32.
            gap: if layout.shares.is_empty() { spread.gap } else { NONE },
            freq_bits: layout.freq_bits,
            window_ways: layout.window_ways,
            shares: layout.shares.len() as u32,
            row_mask: 0,
            miss_mask: 0,
            miss_values: 0,
        }
    }

    pub(crate) fn batch(self, indices: u32, bags: u32, weighted: bool) -> Self {
        let bags_per_feature = (bags / self.bags_per_feature).max(1);
        Self { indices, bags, bags_per_feature, weighted: u32::from(weighted), ..self }
    }

    /// The parameters of a parameter-shared table, where an invocation moves one float.
    pub(crate) fn floats(self) -> Self {
        Self { lanes: lanes(self.dim), ..self }
    }

    /// The parameters for sums of chunks: a partial row has a sum for each weight, then the number of chunks that reach the last weight.
    pub(crate) fn chunk_sums(self, robe: &Robe) -> Self {
        let dim = robe.reach + 1;
        Self { dim, lanes: lanes(dim), partials: 0, ..self }
    }

    /// The parameters for reading and writing rows: one row for each index, and one output for each row.
    pub(crate) fn rows(self, indices: u32) -> Self {
        let (mode, bags_per_feature) = (MODE_ROWS, indices.max(1));
        Self { mode, indices, bags: indices, bags_per_feature, pooling: 2, weighted: 0, ..self }
    }
}

impl Rate {
    pub(crate) fn new(optimizer: &Optimizer) -> Self {
        Self { lr: optimizer.lr, ..Self::default() }
    }
}

/// Number of invocations that move `floats` floats together, one float each: a power of two.
fn lanes(floats: u32) -> u32 {
    floats.clamp(4, 32).next_power_of_two()
}
