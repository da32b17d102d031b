//! What the shaders read out of `params`, as codec and row kernels want it.

use crate::{
    config::{OptimizerKind, Precision, RandomBits, Rounding},
    record::{codec::Noise, rows::optimise::Rule},
    table::layout::{Layout, Params, quad_width},
};

pub(crate) const MODE_TRAIN: u32 = 0;
pub(crate) const MODE_ROWS: u32 = 2;
pub(crate) const LFU: u32 = 1;
pub(crate) const MEAN: u32 = 1;

/// A layout that describes rows and records as `params` does. It knows of no shards.
pub(crate) fn layout(params: &Params) -> Layout {
    Layout {
        dim: params.dim,
        precision: match params.bits {
            32 => Precision::Fp32,
            16 => Precision::Fp16,
            8 => Precision::Int8,
            4 => Precision::Int4,
            _ => Precision::Int2,
        },
        state: params.state,
        state_half: params.state_half == 1,
        state_word: params.state_word,
        payload_half: params.payload_half,
        record_words: params.record_words,
        row_words: params.dim + params.state,
        row_quads: params.row_quads,
        window_slots: params.window_slots,
        lanes: params.lanes,
        sets: params.sets,
        ways: params.ways(),
        total_rows: params.total_rows,
        rows_per_shard: 0,
        shards: 0,
        freqs_per_shard: 0,
    }
}

/// Stride of a slot in floats.
pub(crate) fn slot_words(params: &Params) -> usize {
    (params.row_quads * quad_width(params.dim)) as usize
}

/// The partial rows of a backward, behind the bypassed rows.
pub(crate) fn partials<'s>(params: &Params, scratch: &'s mut [f32]) -> &'s mut [f32] {
    &mut scratch[params.partials as usize * quad_width(params.dim) as usize..]
}

/// The rounding noise of a call; `step` is the clock.
pub(crate) fn noise(params: &Params, step: u32) -> Noise {
    let rounding = if params.stochastic == 1 { Rounding::Stochastic } else { Rounding::Nearest };
    let random_bits = match params.random_bits {
        8 => RandomBits::Eight,
        16 => RandomBits::Sixteen,
        _ => RandomBits::TwentyFour,
    };
    Noise { rounding, random_bits, seed: params.seed, step, purpose: params.purpose }
}

/// How the call's optimiser moves a row.
pub(crate) fn rule(params: &Params) -> Rule {
    let kind = match params.optimizer {
        0 => OptimizerKind::Sgd,
        1 => OptimizerKind::AdaGrad,
        _ => OptimizerKind::RowWiseAdaGrad,
    };
    Rule { kind, lr: params.lr, eps: params.eps, weight_decay: params.weight_decay }
}
