//! Turns the uniform `params`, which the shaders read, into what codec and row kernels take.

use crate::{
    config::{OptimizerKind, Precision, RandomBits, Rounding},
    record::{codec::Noise, rows::optimise::RowStep},
    rules::Numbers,
    table::{
        abi::{Params, Rate},
        row::quad_width,
    },
};

pub(crate) use crate::table::params::MODE_ROWS;

pub(crate) const MODE_TRAIN: u32 = 0;
pub(crate) const MEAN: u32 = 1;

/// The type in which a weight is stored.
pub(crate) fn precision(params: &Params) -> Precision {
    Precision::of_number(params.format)
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
fn kind(params: &Params) -> OptimizerKind {
    OptimizerKind::ALL.get(params.optimizer as usize).copied().unwrap_or(OptimizerKind::Own)
}

/// The optimiser of a call, at its rate, in step number `t`.
pub(crate) fn rule(params: &Params, rate: &Rate, t: u32) -> RowStep {
    let hyper = [params.hyper0, params.hyper1, params.hyper2, params.hyper3];
    let numbers = Numbers { lr: rate.lr, shrink: params.shrink, hyper, fix: [1.0; 2], own: 0.0, t };
    RowStep {
        kind: kind(params),
        numbers: if params.corrects == 1 { numbers.at(t) } else { numbers },
        weight_decay: params.weight_decay,
        own_count: params.own_count == 1,
        clip_value: params.clip_value,
        clip_norm: params.clip_norm,
    }
}
