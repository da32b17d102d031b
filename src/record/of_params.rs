//! Turns the uniform `params`, which the shaders read, into what codec and row kernels take.

use crate::{
    config::{OptimizerKind, Precision, RandomBits, Rounding},
    record::{codec::Noise, rows::optimise::Rule},
    table::{
        abi::{Params, Rate},
        row::quad_width,
    },
};

pub(crate) use crate::table::params::MODE_ROWS;

pub(crate) const MODE_TRAIN: u32 = 0;
pub(crate) const LFU: u32 = 1;
pub(crate) const MEAN: u32 = 1;

/// The type in which a weight is stored.
pub(crate) fn precision(params: &Params) -> Precision {
    match params.bits {
        32 => Precision::Fp32,
        16 => Precision::Fp16,
        8 => Precision::Int8,
        4 => Precision::Int4,
        _ => Precision::Int2,
    }
}

/// Floats from one slot to the next.
pub(crate) fn slot_words(params: &Params) -> usize {
    (params.row_quads * quad_width(params.dim)) as usize
}

/// The partial rows of a backward. They lie behind the bypassed rows in `scratch`.
pub(crate) fn partials<'s>(params: &Params, scratch: &'s mut [f32]) -> &'s mut [f32] {
    &mut scratch[params.partials as usize * quad_width(params.dim) as usize..]
}

/// The rounding noise of a call at step number `step`.
pub(crate) fn noise(params: &Params, step: u32) -> Noise {
    let rounding = if params.stochastic == 1 { Rounding::Stochastic } else { Rounding::Nearest };
    let random_bits = match params.random_bits {
        8 => RandomBits::Eight,
        16 => RandomBits::Sixteen,
        _ => RandomBits::TwentyFour,
    };
    Noise { rounding, random_bits, seed: params.seed, step, purpose: params.purpose, stripe: params.stripe() }
}

/// The optimiser of a call.
pub(crate) fn kind(params: &Params) -> OptimizerKind {
    match params.optimizer {
        0 => OptimizerKind::Sgd,
        1 => OptimizerKind::AdaGrad,
        2 => OptimizerKind::RowWiseAdaGrad,
        3 => OptimizerKind::Momentum,
        4 => OptimizerKind::Adam,
        _ => OptimizerKind::RowWiseAdam,
    }
}

/// The optimiser of a call, at its rate, in step number `t`.
pub(crate) fn rule(params: &Params, rate: &Rate, t: u32) -> Rule {
    Rule {
        kind: kind(params),
        lr: rate.lr,
        eps: params.eps,
        weight_decay: params.weight_decay,
        shrink: params.shrink,
        beta1: params.beta1,
        beta2: params.beta2,
        own_count: params.own_count == 1,
        clip_value: params.clip_value,
        clip_norm: params.clip_norm,
        t,
    }
}
