// Decides whether a step's gradients overflowed, and the scale of the next loss (SPEC 8; OpenSeq2Seq). One invocation.
#include "shared/scaler.wgsl"

@group(0) @binding(0) var<uniform> rule: ScaleRule;
@group(0) @binding(1) var<storage, read_write> greatest: array<u32>; // the result of `inspect`; cleared here
@group(0) @binding(2) var<storage, read_write> state: array<ScalerState>;

#include "shared/exact.wgsl"

const INFINITE: u32 = 0x7f800000u;
const NORMAL: u32 = 0x00800000u; // the bits of 2^-126: smaller magnitudes count as zero

// Replaces magnitudes below 2^-60 with 0. Devices flush only much smaller magnitudes to zero.
fn kept(x: f32) -> f32 {
    return select(x, 0.0, abs(x) < 8.673617379884035e-19);
}

// Adds x to the averages, which are weighted (1 - beta) beta^age and corrected for their start by 1 / (1 - beta^steps).
// The variance is that of the formulas, mean of squares less square of mean, computed without cancellation.
fn averaged(before: ScalerState, x: f32) -> ScalerState {
    var s = before;
    s.decay = kept(times(before.decay, rule.beta));
    let gain = times(rule.beta_rest, reciprocal(plus(1.0, -s.decay)));
    s.mean = kept(plus(before.mean, times(gain, plus(x, -before.mean))));
    s.slow_decay = kept(times(before.slow_decay, rule.slow_beta));
    let correction = reciprocal(plus(1.0, -s.slow_decay));
    let slow_gain = times(rule.slow_rest, correction);
    let off = plus(x, -before.slow_mean);
    let rest = times(times(rule.slow_beta, plus(1.0, -before.slow_decay)), correction); // 1 - slow_gain; 0 in the first step
    s.variance = kept(times(rest, plus(before.variance, times(slow_gain, times(off, off)))));
    s.slow_mean = kept(plus(before.slow_mean, times(slow_gain, off)));
    return s;
}

@compute @workgroup_size(1)
fn main() {
    var s = state[0];
    let scaled = greatest[0];
    greatest[0] = 0u;
    s.iteration += 1u;
    s.inverse = reciprocal(s.scale);
    var largest = select(scaled, 0u, scaled < NORMAL);
    if (largest < INFINITE) {
        largest = bitcast<u32>(times(bitcast<f32>(largest), s.inverse));
        if (largest < NORMAL) { largest = 0u; }
    }
    s.largest = largest;
    let overflow = largest >= INFINITE;
    s.overflow = select(0u, 1u, overflow);
    if (overflow) {
        s.last_overflow = s.iteration;
        s.overflows += 1u;
    }
    if (rule.kind == BACKOFF) {
        if (overflow) {
            s.scale = min(max(times(s.scale, rule.shrink), rule.min), rule.max);
        } else if ((s.iteration - s.last_overflow) % rule.window == 0u) {
            s.scale = min(max(times(s.scale, rule.grow), rule.min), rule.max);
        }
    } else if (rule.kind == LOG_NORMAL && largest != 0u) {
        var x = rule.log_max;
        if (!overflow) { x = logarithm(bitcast<f32>(largest)); }
        s = averaged(s, x);
        // The largest gradient expected, `deviations` standard deviations above the mean, must stay below 2^log_max.
        let highest = plus(s.mean, times(rule.deviations, root(s.variance)));
        s.scale = min(max(power(plus(rule.log_max, -highest)), rule.min), rule.max);
    }
    state[0] = s;
}
