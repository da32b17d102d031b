//! CPU mirror of `shaders/scaler/rescale.wgsl`: the decision of a loss scaler.

use crate::{
    cpu::stages::scaler::exact::{logarithm, power, reciprocal, root},
    table::abi::{ScaleRule, ScalerState},
};

const INFINITE: u32 = 0x7f80_0000;
/// The bits of 2^-126: smaller magnitudes count as zero.
const NORMAL: u32 = 0x0080_0000;

/// Decides whether a step's gradients overflowed, and the scale of the next loss (SPEC 8; OpenSeq2Seq). Mirror of
/// `shaders/scaler/rescale.wgsl`, bit for bit.
pub(crate) fn rescale(rule: &ScaleRule, greatest: &mut [u32], state: &mut [ScalerState]) {
    let s = &mut state[0];
    let scaled = std::mem::take(&mut greatest[0]);
    s.iteration = s.iteration.wrapping_add(1);
    s.inverse = reciprocal(s.scale);
    let mut largest = if scaled < NORMAL { 0 } else { scaled };
    if largest < INFINITE {
        largest = (f32::from_bits(largest) * s.inverse).to_bits();
        if largest < NORMAL {
            largest = 0;
        }
    }
    s.largest = largest;
    let overflow = largest >= INFINITE;
    s.overflow = u32::from(overflow);
    if overflow {
        s.last_overflow = s.iteration;
        s.overflows = s.overflows.wrapping_add(1);
    }
    if rule.kind == ScaleRule::BACKOFF {
        if overflow {
            s.scale = (s.scale * rule.shrink).clamp(rule.min, rule.max);
        } else if s.iteration.wrapping_sub(s.last_overflow).is_multiple_of(rule.window) {
            s.scale = (s.scale * rule.grow).clamp(rule.min, rule.max);
        }
    } else if rule.kind == ScaleRule::LOG_NORMAL && largest != 0 {
        let x = if overflow { rule.log_max } else { logarithm(f32::from_bits(largest)) };
        average(rule, s, x);
        // The largest gradient expected, `deviations` standard deviations above the mean, must stay below 2^log_max.
        let highest = s.mean + rule.deviations * root(s.variance);
        s.scale = power(rule.log_max - highest).clamp(rule.min, rule.max);
    }
}

/// Raises x far above what a device may flush to zero.
fn kept(x: f32) -> f32 {
    if x.abs() < f32::from_bits((127 - 60) << 23) { 0.0 } else { x }
}

/// Adds x to the averages, which are weighted (1 - beta) beta^age and corrected for their start by 1 / (1 -
/// beta^steps). The variance is the formulas' mean of squares less square of mean, computed without
/// cancellation.
fn average(rule: &ScaleRule, s: &mut ScalerState, x: f32) {
    s.decay = kept(s.decay * rule.beta);
    let gain = rule.beta_rest * reciprocal(1.0 - s.decay);
    s.mean = kept(s.mean + gain * (x - s.mean));
    let slow_decay = kept(s.slow_decay * rule.slow_beta);
    let correction = reciprocal(1.0 - slow_decay);
    let slow_gain = rule.slow_rest * correction;
    let off = x - s.slow_mean;
    let rest = rule.slow_beta * (1.0 - s.slow_decay) * correction; // 1 - slow_gain; 0 in the first step
    s.variance = kept(rest * (s.variance + slow_gain * (off * off)));
    s.slow_mean = kept(s.slow_mean + slow_gain * off);
    s.slow_decay = slow_decay;
}
