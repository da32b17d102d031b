//! The packed formats (SPEC 2, P1 section 3): FP16 by bit manipulation, integer codes by row-wise min-max.
//!
//! `shaders/shared/half.wgsl`, `shaders/shared/record.wgsl` and `shaders/write_back.wgsl` do the same on the device.

use crate::{Layout, Precision, Rounding, rng};

/// What a row's rounding noise depends on besides row and element.
#[derive(Clone, Copy, Debug)]
pub struct Noise {
    /// How values between two neighbours are stored.
    pub rounding: Rounding,
    /// The group's seed.
    pub seed: u32,
    /// The step number.
    pub step: u32,
    /// First of the two purposes: weight, then state. See [`rng::Purpose`].
    pub purpose: u32,
}

impl Noise {
    fn bits(&self, row: u32, element: u32, state: bool) -> u32 {
        rng::random(self.seed, self.step, row, element, self.purpose + u32::from(state))
    }
}

/// binary16 to binary32, exact.
#[inline]
#[must_use]
pub fn f32_from_half(h: u32) -> f32 {
    let sign = (h & 0x8000) << 16;
    let exponent = (h >> 10) & 31;
    let mantissa = h & 0x3ff;
    if exponent == 0 {
        return f32::from_bits((mantissa as f32 * 2f32.powi(-24)).to_bits() | sign);
    }
    f32::from_bits(sign | ((exponent + 112) << 23) | (mantissa << 13))
}

/// Finite binary32 to binary16, saturating at 65504; `noise` is used by stochastic rounding alone.
#[inline]
#[must_use]
pub fn half_from_f32(x: f32, rounding: Rounding, noise: impl FnOnce() -> u32) -> u32 {
    let bits = x.to_bits();
    let sign = (bits >> 16) & 0x8000;
    let exponent = (bits >> 23) & 255;
    let mantissa = (bits & 0x7f_ffff) | 0x80_0000;
    // The lower neighbour of the magnitude, and the fraction between the neighbours in 2^-32.
    let (below, threshold) = match exponent {
        143.. => return sign | 0x7bff,
        113.. => (((bits & 0x7fff_ffff) - (112 << 23)) >> 13, bits << 19),
        95.. => (mantissa >> (126 - exponent), mantissa << (exponent - 94)),
        1.. => (0, mantissa >> (94 - exponent).min(31)),
        0 => (0, 0),
    };
    let up = match rounding {
        Rounding::Stochastic => noise() < threshold,
        Rounding::Nearest => threshold > 1 << 31 || (threshold == 1 << 31 && below & 1 == 1),
    };
    sign | (below + u32::from(up)).min(0x7bff)
}

/// `fl(1 / (2^k - 1))`, the constant of the scale.
#[must_use]
pub fn inverse_steps(bits: u32) -> f32 {
    1.0 / ((1u32 << bits) - 1) as f32
}

/// Scale and bias of a row of finite values, or `None` if `max - min` overflows.
#[must_use]
pub fn scale_and_bias(weights: &[f32], bits: u32) -> Option<(f32, f32)> {
    let (low, high) = weights.iter().fold((f32::MAX, f32::MIN), |(low, high), &x| (low.min(x), high.max(x)));
    let span = high - low;
    let scale = span * inverse_steps(bits);
    let scale = if scale < f32::MIN_POSITIVE { 0.0 } else { scale };
    let bias = if low == 0.0 { 0.0 } else { low };
    span.is_finite().then_some((scale, bias))
}

/// The code of `x` under a row's scale and bias.
#[inline]
#[must_use]
pub fn code(x: f32, scale: f32, bias: f32, bits: u32, rounding: Rounding, noise: impl FnOnce() -> u32) -> u32 {
    if scale == 0.0 {
        return 0;
    }
    let top = ((1u32 << bits) - 1) as f32;
    let v = (x - bias) / scale;
    let near = v.round_ties_even();
    if rounding == Rounding::Nearest || (v - near).abs() <= (top + 1.0 + bias.abs() / scale) * 2f32.powi(-22) {
        return near.clamp(0.0, top) as u32;
    }
    let below = v.floor();
    let up = (noise() >> 8) as f32 * 2f32.powi(-24) < v - below;
    (below + if up { 1.0 } else { 0.0 }).clamp(0.0, top) as u32
}

/// Packs a row (`weights`, `state`) into its record. Returns false, with the record untouched, if a value is not finite or
/// the row's range overflows.
#[must_use]
pub fn pack(layout: &Layout, noise: &Noise, row: u32, weights: &[f32], state: &[f32], record: &mut [u32]) -> bool {
    if weights.iter().chain(state).any(|x| !x.is_finite()) {
        return false;
    }
    let bits = layout.precision.bits();
    let (scale, bias) = match layout.precision.is_integer() {
        true => match scale_and_bias(weights, bits) {
            Some(pair) => pair,
            None => return false,
        },
        false => (0.0, 0.0),
    };
    record.fill(0);
    if layout.precision.is_integer() {
        record[0] = scale.to_bits();
        record[1] = bias.to_bits();
    }
    let set_half = |record: &mut [u32], h: u32, value: u32| record[h as usize / 2] |= value << (16 * (h & 1));
    for (e, &x) in (0u32..).zip(state) {
        if layout.state_half {
            let value = half_from_f32(x, noise.rounding, || noise.bits(row, e, true));
            set_half(record, 2 * layout.state_word + e, value);
        } else {
            record[(layout.state_word + e) as usize] = x.to_bits();
        }
    }
    for (e, &x) in (0u32..).zip(weights) {
        let random = || noise.bits(row, e, false);
        match layout.precision {
            Precision::Fp32 => record[(layout.payload_half / 2 + e) as usize] = x.to_bits(),
            Precision::Fp16 => set_half(record, layout.payload_half + e, half_from_f32(x, noise.rounding, random)),
            _ => {
                let at = layout.payload_half as usize * 16 + e as usize * bits as usize;
                record[at / 32] |= code(x, scale, bias, bits, noise.rounding, random) << (at % 32);
            }
        }
    }
    true
}

/// Weight `element` of a record.
#[inline]
#[must_use]
pub fn weight(layout: &Layout, record: &[u32], element: u32) -> f32 {
    match layout.precision {
        Precision::Fp32 => f32::from_bits(record[(layout.payload_half / 2 + element) as usize]),
        Precision::Fp16 => f32_from_half(half_at(record, layout.payload_half + element)),
        _ => {
            let bits = layout.precision.bits();
            let at = layout.payload_half as usize * 16 + element as usize * bits as usize;
            let code = (record[at / 32] >> (at % 32)) & ((1 << bits) - 1);
            code as f32 * f32::from_bits(record[0]) + f32::from_bits(record[1])
        }
    }
}

/// State `element` of a record.
#[inline]
#[must_use]
pub fn state(layout: &Layout, record: &[u32], element: u32) -> f32 {
    if layout.state_half {
        return f32_from_half(half_at(record, 2 * layout.state_word + element));
    }
    f32::from_bits(record[(layout.state_word + element) as usize])
}

fn half_at(record: &[u32], h: u32) -> u32 {
    (record[h as usize / 2] >> (16 * (h & 1))) & 0xffff
}

/// Unpacks a record into `row`: dim weights, then the state.
pub fn unpack(layout: &Layout, record: &[u32], row: &mut [f32]) {
    let (weights, states) = row.split_at_mut(layout.dim as usize);
    for (e, x) in (0u32..).zip(weights) {
        *x = weight(layout, record, e);
    }
    for (e, x) in (0u32..).zip(states) {
        *x = state(layout, record, e);
    }
}
