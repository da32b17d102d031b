//! The packed formats (SPEC 2; Yang 2020, section 3): FP16 by bit manipulation, integer codes by row-wise minimum and
//! maximum.
//!
//! `half.wgsl`, `codec.wgsl`, `pack.wgsl` and `unpack*.wgsl` in `shaders/shared/` do the same on the device.

use crate::{
    config::{GroupConfig, Precision, RandomBits, Rounding},
    error::Error,
    formats::Head,
    record::{int4x32, state_code},
    stripe::Stripe,
    table::{layout::Layout, rng, row::RowLayout},
};

/// The inputs of a row's rounding noise, besides row and element.
#[derive(Clone, Copy, Debug)]
pub struct Noise {
    /// Nearest or stochastic.
    pub rounding: Rounding,
    /// Random bits for each element.
    pub random_bits: RandomBits,
    /// The group's seed.
    pub seed: u32,
    /// The step number.
    pub step: u32,
    /// The purpose of the weights' noise; the state's is the next one. See [`rng::Purpose`].
    pub purpose: u32,
    /// Which rows of a group over ranks this shard stores; all of them in any other group.
    pub stripe: Stripe,
}

impl Noise {
    /// The noise of what a group of this configuration rounds for a purpose in a step.
    pub(crate) const fn new(config: &GroupConfig, purpose: rng::Purpose, step: u32) -> Self {
        let &GroupConfig { random_bits, seed, stripe, .. } = config;
        Self { rounding: purpose.rounding(config), random_bits, seed, step, purpose: purpose as u32, stripe }
    }

    pub(crate) fn of(&self, row: u32, element: u32, state: bool) -> u32 {
        rng::noise(
            self.random_bits,
            self.seed,
            self.step,
            self.stripe.whole(row),
            element,
            self.purpose + u32::from(state),
        )
    }
}

/// Converts binary16 to binary32, exactly.
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

/// Converts a finite binary32 to binary16; saturates at 65504. Stochastic rounding goes up if `noise` ([`rng::noise`],
/// in units of 2^-32) is below the fraction, which is cut to whole units of 2^-32.
#[inline]
#[must_use]
pub fn half_from_f32(x: f32, rounding: Rounding, noise: impl FnOnce() -> u32) -> u32 {
    let bits = x.to_bits();
    let sign = (bits >> 16) & 0x8000;
    let exponent = (bits >> 23) & 255;
    let mantissa = (bits & 0x7f_ffff) | 0x80_0000;
    // The lower neighbour of the magnitude, and the fraction between the neighbours in units of 2^-32.
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

/// Rounds a finite moment to 16 bits: with a sign, the upper half of its binary32 form (8 bits of exponent, 7 of fraction); without one, as a
/// second moment, the half behind the sign (8 bits of fraction). So both have the range of binary32, and no second
/// moment that is a normal number becomes 0. Always stochastic, because a moment decays by less than a step of any format of 16 bits: goes
/// up in magnitude if `noise` ([`rng::noise`], in units of 2^-32) is below the fraction that is cut off.
#[inline]
#[must_use]
pub(crate) fn moment_from_f32(x: f32, signed: bool, noise: u32) -> u32 {
    let (shift, most) = if signed { (16, 0x7f7f) } else { (15, 0xfeff) };
    let magnitude = x.to_bits() & 0x7fff_ffff;
    let kept = (magnitude >> shift) + u32::from(noise < magnitude << (32 - shift));
    let sign = if signed { x.to_bits() >> 31 << 15 } else { 0 };
    sign | kept.min(most)
}

/// Converts what [`moment_from_f32`] made to binary32, exactly.
#[inline]
#[must_use]
pub(crate) fn f32_from_moment(h: u32, signed: bool) -> f32 {
    f32::from_bits(h << if signed { 16 } else { 15 })
}

/// The word of scalar `k` of a row's state.
const fn scalar_word(layout: &RowLayout, k: u32) -> usize {
    (layout.state_word + k) as usize
}

/// First 16-bit half of the state behind its scalars.
const fn each_half(layout: &RowLayout) -> u32 {
    2 * (layout.state_word + layout.scalars)
}

/// `fl(1 / (2^k - 1))`, the constant of the scale (SPEC 2).
#[must_use]
pub(crate) fn inverse_steps(bits: u32) -> f32 {
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

/// The largest distance of the quotient `(x - bias) / scale` of a stored value from its code, in codes (SPEC 2). The bound holds for
/// quotients that are off by 2.5 ULP, the most that WGSL allows.
#[inline]
#[must_use]
pub fn tolerance(scale: f32, bias: f32, bits: u32) -> f32 {
    ((1u32 << bits) as f32 + bias.abs() / scale) * 2f32.powi(-21)
}

/// The code of `x` under a row's scale and bias. Stochastic rounding goes up if `noise` ([`rng::noise`], in units of
/// 2^-32) is below the fraction.
#[inline]
#[must_use]
pub(crate) fn code(x: f32, scale: f32, bias: f32, bits: u32, rounding: Rounding, noise: impl FnOnce() -> u32) -> u32 {
    if scale == 0.0 {
        return 0;
    }
    let top = ((1u32 << bits) - 1) as f32;
    let v = (x - bias) / scale;
    let near = v.round_ties_even();
    if rounding == Rounding::Nearest || (v - near).abs() <= tolerance(scale, bias, bits) {
        return near.clamp(0.0, top) as u32;
    }
    let below = v.floor();
    let up = f64::from(noise()) * 2f64.powi(-32) < f64::from(v - below);
    (below + if up { 1.0 } else { 0.0 }).clamp(0.0, top) as u32
}

/// Packs a row (`weights`, `state`) into its record. Returns false and leaves the record untouched if a value is not
/// finite or the row's range overflows.
#[must_use]
pub fn pack(layout: &RowLayout, noise: &Noise, row: u32, weights: &[f32], state: &[f32], record: &mut [u32]) -> bool {
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
    if layout.precision == Precision::Int4x32 {
        return int4x32::pack(layout, weights, record, false);
    }
    record.fill(0);
    if layout.precision.is_integer() {
        record[0] = scale.to_bits();
        record[1] = bias.to_bits();
    }
    let set_half = |record: &mut [u32], h: u32, value: u32| record[h as usize / 2] |= value << (16 * (h & 1));
    let each = layout.state - layout.scalars;
    if layout.state_bits == 8 {
        pack_coded(layout, noise, row, &state[..each as usize], record);
    }
    for (e, &x) in (0u32..).zip(state) {
        if e >= each {
            record[scalar_word(layout, e - each)] = x.to_bits();
        } else if layout.state_bits == 16 {
            let value = state_half(layout, noise, row, e, x);
            set_half(record, each_half(layout) + e, value);
        } else if layout.state_bits == 32 {
            record[(each_half(layout) / 2 + e) as usize] = x.to_bits();
        }
    }
    for (e, &x) in (0u32..).zip(weights) {
        let random = || noise.of(row, e, false);
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

/// Rounds float `element` of a row's state to its 16 bits.
pub(crate) fn state_half(layout: &RowLayout, noise: &Noise, row: u32, element: u32, x: f32) -> u32 {
    let random = || noise.of(row, element, true);
    match layout.is_moment(element) {
        true => moment_from_f32(x, layout.is_signed(element), random()),
        false => half_from_f32(x, noise.rounding, random),
    }
}

/// The bit of the word of scales at which the base of element `e`'s codes begins.
const fn base_at(layout: &RowLayout, e: u32) -> u32 {
    if layout.is_signed(e) { 16 } else { 0 }
}

/// The first byte of a record's codes, behind the word of their scales.
const fn codes_at(layout: &RowLayout) -> usize {
    4 * (layout.state_word + layout.scalars + 1) as usize
}

/// Writes a row's states, its scalars left out, as codes and a word of scales.
pub(crate) fn pack_coded(layout: &RowLayout, noise: &Noise, row: u32, states: &[f32], record: &mut [u32]) {
    let mut largest = [0; 2];
    for (e, x) in (0..).zip(states) {
        let most = &mut largest[usize::from(layout.is_signed(e))];
        *most = (x.to_bits() & 0x7fff_ffff).max(*most);
    }
    let bases = [state_code::base(largest[0], false), state_code::base(largest[1], true)];
    let has =
        |signed: bool| (0..states.len() as u32).step_by(layout.dim as usize).any(|e| layout.is_signed(e) == signed);
    let word = if has(true) { bases[1] << 16 } else { 0 } | if has(false) { bases[0] } else { 0 };
    record[codes_at(layout) / 4 - 1] = word;
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(record);
    let (codes, padding) = bytes[codes_at(layout)..2 * layout.payload_half as usize].split_at_mut(states.len());
    padding.fill(0);
    for ((e, x), code) in (0..).zip(states).zip(codes) {
        let random = noise.of(row, e, true);
        *code = match layout.is_signed(e) {
            true => state_code::signed(x.to_bits(), bases[1], random),
            false => state_code::unsigned(x.to_bits(), bases[0], random),
        } as u8;
    }
}

/// Reads element `e` of a row's coded state.
pub(crate) fn coded(layout: &RowLayout, record: &[u32], e: u32) -> f32 {
    let bytes: &[u8] = bytemuck::cast_slice(record);
    let base = record[codes_at(layout) / 4 - 1] >> base_at(layout, e) & 0xffff;
    state_code::value(bytes[codes_at(layout) + e as usize].into(), base, layout.is_signed(e))
}

/// Reads weight `element` of a record.
#[inline]
#[must_use]
pub fn weight(layout: &RowLayout, record: &[u32], element: u32) -> f32 {
    match layout.precision {
        Precision::Fp32 => f32::from_bits(record[(layout.payload_half / 2 + element) as usize]),
        Precision::Fp16 => f32_from_half(half_at(record, layout.payload_half + element)),
        _ => {
            let bits = layout.precision.bits();
            let at = layout.payload_half as usize * 16 + element as usize * bits as usize;
            let code = (record[at / 32] >> (at % 32)) & ((1 << bits) - 1);
            let [scale, bias] = head(layout, record, element);
            code as f32 * scale + bias
        }
    }
}

/// Scale and bias of a weight with a code.
fn head(layout: &RowLayout, record: &[u32], element: u32) -> [f32; 2] {
    match layout.precision.format().head {
        Head::Fp16 => [0, 1].map(|k| f32_from_half(half_at(record, 2 * (element / layout.block) + k))),
        Head::Fp32 | Head::None => [record[0], record[1]].map(f32::from_bits),
    }
}

/// Reads state `element` of a record.
#[inline]
#[must_use]
pub fn state(layout: &RowLayout, record: &[u32], element: u32) -> f32 {
    let each = layout.state - layout.scalars;
    if element >= each {
        return f32::from_bits(record[scalar_word(layout, element - each)]);
    }
    match layout.state_bits {
        32 => return f32::from_bits(record[(each_half(layout) / 2 + element) as usize]),
        8 => return coded(layout, record, element),
        _ => {}
    }
    let half = half_at(record, each_half(layout) + element);
    if layout.is_moment(element) { f32_from_moment(half, layout.is_signed(element)) } else { f32_from_half(half) }
}

fn half_at(record: &[u32], h: u32) -> u32 {
    (record[h as usize / 2] >> (16 * (h & 1))) & 0xffff
}

/// Unpacks a record into `row`: dim weights, then the state.
pub fn unpack(layout: &RowLayout, record: &[u32], row: &mut [f32]) {
    let (weights, states) = row.split_at_mut(layout.dim as usize);
    for (e, x) in (0u32..).zip(weights) {
        *x = weight(layout, record, e);
    }
    for (e, x) in (0u32..).zip(states) {
        *x = state(layout, record, e);
    }
}

/// The floats of a packed row of a group, as [`Part::Records`](crate::state::Part::Records) has it: dim weights, then the optimiser's state.
///
/// ```
/// use hotrow::{CpuGroup, GroupConfig, Init, Precision, prelude::*, state::{Part, values}};
///
/// let config = GroupConfig::new(&[10], 4).with_precision(Precision::Fp16).with_init(Init::Constant(1.5));
/// let mut group = CpuGroup::new(config.clone())?;
/// let mut record = [0; 2];
/// group.read_part(Part::Records, 2 * 7, &mut record)?; // row 7
/// assert_eq!(values(&config, &record)?, [1.5; 4]);
/// # Ok::<(), hotrow::Error>(())
/// ```
///
/// # Errors
/// [`Error::Config`] for an illegal configuration, [`Error::Length`] for a record of another length.
pub fn values(config: &GroupConfig, record: &[u32]) -> Result<Vec<f32>, Error> {
    let row = Layout::new(config, u64::MAX)?.row;
    let (wanted, found) = (u64::from(row.record_words), record.len() as u64);
    if wanted != found {
        return Err(Error::Length { what: "words of a record", wanted, found });
    }
    let mut floats = vec![0.0; row.row_words as usize];
    unpack(&row, record, &mut floats);
    Ok(floats)
}

#[cfg(test)]
mod tests {
    use half::f16;
    use rand::{RngExt, SeedableRng, rngs::StdRng};

    use super::*;
    use crate::config::OptimizerKind;

    const INTEGERS: [u32; 3] = [8, 4, 2];

    fn nearest(x: f32) -> u32 {
        half_from_f32(x, Rounding::Nearest, || unreachable!("nearest rounding asks for no noise"))
    }

    fn stochastic(x: f32, noise: u32) -> u32 {
        half_from_f32(x, Rounding::Stochastic, || noise)
    }

    fn layout_of(precision: Precision, kind: OptimizerKind, dim: u32) -> RowLayout {
        RowLayout::new(dim, precision, kind)
    }

    fn noise_of(rounding: Rounding, step: u32) -> Noise {
        Noise {
            rounding,
            random_bits: RandomBits::ALL[step as usize % 3],
            seed: 11,
            step,
            purpose: rng::Purpose::Update as u32,
            stripe: Stripe::ALL,
        }
    }

    fn packed(layout: &RowLayout, noise: &Noise, weights: &[f32]) -> Vec<u32> {
        let mut record = vec![0; layout.record_words as usize];
        assert!(pack(layout, noise, 3, weights, &vec![0.0; layout.state as usize], &mut record));
        record
    }

    fn unpacked(layout: &RowLayout, record: &[u32]) -> Vec<f32> {
        let mut row = vec![f32::NAN; layout.row_words as usize];
        unpack(layout, record, &mut row);
        row
    }

    #[test]
    fn every_half_is_what_the_half_crate_says() {
        for h in 0..=u16::MAX {
            let exact = f16::from_bits(h).to_f32();
            let ours = f32_from_half(u32::from(h));
            if !exact.is_finite() {
                // Never stored, since `half_from_f32` saturates, but read as finite.
                assert!(ours.is_finite(), "{h:#06x}");
                continue;
            }
            assert_eq!(ours.to_bits(), exact.to_bits(), "{h:#06x}");
            assert_eq!(nearest(exact), u32::from(h), "{h:#06x}");
            for noise in [0, 1, 1 << 31, u32::MAX] {
                assert_eq!(stochastic(exact, noise), u32::from(h), "{h:#06x} {noise:#x}");
            }
        }
    }

    /// Rounds with the `half` crate and saturates as `half_from_f32` does.
    fn reference(x: f32) -> u32 {
        let h = u32::from(f16::from_f32(x).to_bits());
        if h & 0x7fff >= 0x7c00 { (h & 0x8000) | 0x7bff } else { h }
    }

    #[test]
    fn nearest_half_of_any_float() {
        let mut random = StdRng::seed_from_u64(1);
        for _ in 0..2_000_000 {
            let x = f32::from_bits(random.random());
            if x.is_finite() {
                assert_eq!(nearest(x), reference(x), "{x:e}");
            }
        }
        // The range of halves, which a random exponent seldom hits: normals, subnormals, and values that round to zero.
        for _ in 0..2_000_000 {
            let exponent: u32 = random.random_range(85..145);
            let bits: u32 = random.random();
            let x = f32::from_bits(bits & 0x807f_ffff | exponent << 23);
            assert_eq!(nearest(x), reference(x), "{x:e}");
        }
    }

    #[test]
    fn nearest_half_at_ties() {
        for h in 0..0x7bffu16 {
            // Exact: a half has 11 bits, the middle of two halves 12.
            let middle = (f16::from_bits(h).to_f32() + f16::from_bits(h + 1).to_f32()) / 2.0;
            for x in [middle, middle.next_up(), middle.next_down(), -middle, -middle.next_up(), -middle.next_down()] {
                assert_eq!(nearest(x), reference(x), "{x:e}");
            }
            assert_eq!(nearest(middle) & 1, 0);
        }
    }

    #[test]
    fn halves_saturate() {
        for x in [65504.0, 65519.0, 65520.0, 65535.9, 65536.0, 1e30, f32::MAX] {
            for noise in [0, u32::MAX] {
                assert_eq!(stochastic(x, noise), 0x7bff, "{x}");
                assert_eq!(stochastic(-x, noise), 0xfbff, "{x}");
            }
            assert_eq!((nearest(x), nearest(-x)), (0x7bff, 0xfbff), "{x}");
        }
    }

    #[test]
    fn stochastic_half_turns_at_its_threshold() {
        // (value, lower neighbour, fraction of the way up in units of 2^-32)
        let quarter = 1 << 30;
        let cases = [
            (1.0 + 0.25 / 1024.0, 0x3c00, quarter),
            (1.0 + 0.75 / 1024.0, 0x3c00, 3 * quarter),
            (2048.0 + 0.5, 0x6800, quarter),
            (2f32.powi(-24) * 0.25, 0x0000, quarter),
            (2f32.powi(-24) * 1.5, 0x0001, 2 * quarter),
            (2f32.powi(-24) * 1023.75, 0x03ff, 3 * quarter),
            (2f32.powi(-25), 0x0000, 1 << 31),
            (2f32.powi(-32), 0x0000, 1 << 24),
            (2f32.powi(-33), 0x0000, 1 << 23),
            (2f32.powi(-56), 0x0000, 1),
        ];
        for (x, below, threshold) in cases {
            for sign in [0, 0x8000] {
                let x = if sign == 0 { x } else { -x };
                assert_eq!(stochastic(x, threshold - 1), sign | (below + 1), "{x:e}");
                assert_eq!(stochastic(x, threshold), sign | below, "{x:e}");
                assert_eq!(stochastic(x, 0), sign | (below + 1), "{x:e}");
                assert_eq!(stochastic(x, u32::MAX), sign | below, "{x:e}");
            }
        }
        // Below 2^-56 the fraction is less than one step of the noise.
        for x in [2f32.powi(-57), f32::from_bits(1), 0.0] {
            assert_eq!(stochastic(x, 0), 0, "{x:e}");
        }
    }

    #[test]
    fn steps_are_the_shader_s_constants() {
        let shader = include_str!("../../shaders/shared/codec.wgsl");
        let constant = |prefix: &str| {
            let at = shader.find(prefix).unwrap() + prefix.len();
            shader[at..].split(';').next().unwrap().parse::<f32>().unwrap()
        };
        let found = [
            (8, constant("var inverse = ")),
            (4, constant("if (params.bits == 4u) { inverse = ")),
            (2, constant("if (params.bits == 2u) { inverse = ")),
        ];
        for (bits, value) in found {
            assert_eq!(value.to_bits(), inverse_steps(bits).to_bits(), "{bits}");
        }
        let factor = "abs(bias) / scale) * ";
        let at = shader.find(factor).unwrap() + factor.len();
        let factor: f32 = shader[at..].split(')').next().unwrap().parse().unwrap();
        assert_eq!((factor * 256.0).to_bits(), tolerance(1.0, 0.0, 8).to_bits());
    }

    #[test]
    fn constant_rows_and_single_elements() {
        for precision in [Precision::Int8, Precision::Int4, Precision::Int2] {
            for rounding in [Rounding::Nearest, Rounding::Stochastic] {
                for value in [0.0, -0.0, 1.5, -3e38, f32::MIN_POSITIVE, f32::from_bits(1)] {
                    for dim in [1, 7] {
                        let layout = layout_of(precision, OptimizerKind::Sgd, dim);
                        let record = packed(&layout, &noise_of(rounding, 1), &vec![value; dim as usize]);
                        assert_eq!(record[0], 0);
                        assert_eq!(record[1], (value + 0.0).to_bits());
                        assert!(record[2..].iter().all(|&word| word == 0));
                        assert_eq!(unpacked(&layout, &record), vec![value; dim as usize]);
                    }
                }
            }
            // A range whose scale would be subnormal counts as constant.
            let layout = layout_of(precision, OptimizerKind::Sgd, 2);
            let record = packed(&layout, &noise_of(Rounding::Nearest, 1), &[1e-38, 1.1e-38]);
            assert_eq!(unpacked(&layout, &record), [1e-38, 1e-38]);
        }
    }

    #[test]
    fn the_top_code_never_wraps() {
        let mut random = StdRng::seed_from_u64(2);
        for bits in INTEGERS {
            let top = (1 << bits) - 1;
            for _ in 0..100_000 {
                let low: f32 = random.random_range(-1.0..1.0) * 10f32.powi(random.random_range(-30..30));
                let high = low + random.random::<f32>() * 10f32.powi(random.random_range(-30..30));
                let (scale, bias) = scale_and_bias(&[low, high], bits).unwrap();
                for noise in [0, u32::MAX] {
                    let code = |x| code(x, scale, bias, bits, Rounding::Stochastic, || noise);
                    assert_eq!(code(low), 0, "{low} {high} {bits}");
                    assert_eq!(code(high), if scale == 0.0 { 0 } else { top }, "{low} {high} {bits}");
                    assert!(code(high.next_down().max(low)) <= top);
                }
            }
            // Beyond the row's own range, which no stored value is: the code must still not wrap.
            assert_eq!(code(1e9, 1.0, 0.0, bits, Rounding::Stochastic, || 0), top);
            assert_eq!(code(-1e9, 1.0, 0.0, bits, Rounding::Stochastic, || 0), 0);
        }
    }

    #[test]
    fn representable_rows_stay_where_they_are() {
        let mut random = StdRng::seed_from_u64(3);
        let mut ratios = [0; 3];
        for precision in Precision::ALL {
            let layout = layout_of(precision, OptimizerKind::Sgd, 9);
            for round in 0..20_000 {
                let size = 10f32.powi(random.random_range(-6..6));
                // The bias is up to a million times the range, or zero.
                let far = 10f32.powi(random.random_range(-2..7)) * size;
                let bias = if round % 5 == 0 { 0.0 } else { random.random_range(-1.0..1.0) * far };
                let weights: Vec<f32> = (0..9).map(|_| bias + size * random.random::<f32>()).collect();
                let first = packed(&layout, &noise_of(Rounding::Stochastic, round), &weights);
                let values = unpacked(&layout, &first);
                let scale = f32::from_bits(first[0]);
                if precision.is_integer() && scale > 0.0 {
                    let ratio = bias.abs() / scale;
                    ratios[usize::from(ratio > 1e2) + usize::from(ratio > 1e5)] += 1;
                }
                for rounding in [Rounding::Nearest, Rounding::Stochastic] {
                    for step in 0..2 {
                        let again = packed(&layout, &noise_of(rounding, 1_000_000 + 2 * round + step), &values);
                        let payload = layout.payload_half as usize / 2;
                        assert_eq!(again[payload..], first[payload..], "{precision:?} {rounding:?} {weights:?}");
                    }
                }
            }
        }
        assert!(ratios.iter().all(|&n| n > 1000), "{ratios:?}");
    }

    /// The largest distance of a stored value's quotient from its code, in tolerances, if the division is off by
    /// `ulps`.
    fn farthest(ulps: f64) -> f64 {
        let mut random = StdRng::seed_from_u64(15);
        let mut most: f64 = 0.0;
        for bits in INTEGERS {
            for round in 0..4_000 {
                let far = if round % 2 == 0 { 1.0 } else { 10f32.powi(random.random_range(-2..5)) };
                let low = random.random_range(-1.0..1.0) * far;
                let (scale, bias) = scale_and_bias(&[low, low + random.random::<f32>()], bits).unwrap();
                if scale == 0.0 {
                    continue;
                }
                for q in 0..1u32 << bits {
                    let x = q as f32 * scale + bias;
                    let v = f64::from((x - bias) / scale);
                    let ulp = 2f64.powf(v.abs().max(1e-30).log2().floor() - 23.0);
                    let away = (v - f64::from(q)).abs() + (ulps - 0.5).max(0.0) * ulp;
                    most = most.max(away / f64::from(tolerance(scale, bias, bits)));
                }
            }
        }
        most
    }

    #[test]
    fn a_stored_code_is_found_again_by_any_division_that_wgsl_allows() {
        let most = farthest(2.5);
        assert!(most <= 1.0, "{most}");
        assert!(2.0 * most > 1.0, "{most}: half the tolerance, 2^-22, would not do");
    }

    /// The number of the `2^k` noises below a fraction of `cut` * 2^-32. Noise ascends with its random bits.
    fn below(bits: RandomBits, cut: u32) -> u32 {
        let (mut low, mut high) = (0, 1 << bits.bits());
        while low < high {
            let r = u32::midpoint(low, high);
            let noise = rng::centred(bits, r << (32 - bits.bits()));
            if noise < cut { low = r + 1 } else { high = r }
        }
        low
    }

    #[test]
    fn the_bias_is_bounded_by_the_random_bits() {
        let mut random = StdRng::seed_from_u64(14);
        for bits in RandomBits::ALL {
            assert_eq!(below(bits, 0), 0, "an exact value never moves");
            let mut most: f64 = 0.0;
            for _ in 0..20_000 {
                // Random fractions, and those with the largest bias.
                let cut: u32 = random.random();
                let grain = 32 - bits.bits();
                let edge = (cut >> grain << grain) + (1 << (grain - 1));
                for cut in [cut, edge, edge + 1, edge - 1] {
                    let up = f64::from(below(bits, cut)) / f64::from(1 << bits.bits());
                    most = most.max((up - f64::from(cut) * 2f64.powi(-32)).abs());
                }
            }
            assert!(most <= bits.bias(), "{bits:?}: {most}");
            // The bound is tight: one bit fewer would break it.
            assert!(most > 0.9 * bits.bias(), "{bits:?}: {most}");
        }
    }

    /// Whether the mean of `value(k)` over many k is `expected`, within 6 sigma of a two-point distribution `step` wide
    /// and the bias that so many random bits may have.
    fn is_unbiased(expected: f64, step: f64, bits: RandomBits, value: impl Fn(u32) -> f64) -> bool {
        const N: u32 = 40_000;
        let mean = (0..N).map(value).sum::<f64>() / f64::from(N);
        // The fraction's sigma is at most a half.
        let sigma = 0.5 * step / f64::from(N).sqrt();
        (mean - expected).abs() < 6.0 * sigma + step * bits.bias()
    }

    #[test]
    fn stochastic_half_is_unbiased_and_nearest_is_not() {
        let mut random = StdRng::seed_from_u64(4);
        for round in 0..60 {
            // Fractions near a third and two thirds: nearest rounding would be off by a third of a step.
            let h = match round % 3 {
                0 => random.random_range(0x400..0x7bff),
                1 => random.random_range(0..0x400),
                _ => 0x7bfe,
            };
            let (low, high) = (f32_from_half(h), f32_from_half(h + 1));
            let step = high - low;
            let sign = if round % 2 == 0 { 1.0 } else { -1.0 };
            let x = sign * (low + step * if random.random() { 0.34 } else { 0.66 });
            for bits in RandomBits::ALL {
                let with = |rounding| {
                    is_unbiased(f64::from(x), f64::from(step), bits, |k| {
                        let noise = Noise { random_bits: bits, ..noise_of(rounding, k / 64) };
                        f64::from(f32_from_half(half_from_f32(x, rounding, || noise.of(5, k % 64, false))))
                    })
                };
                assert!(with(Rounding::Stochastic), "{bits:?} {x:e}");
                assert!(!with(Rounding::Nearest), "{bits:?} {x:e}");
            }
        }
    }

    #[test]
    fn stochastic_codes_are_unbiased_and_nearest_ones_are_not() {
        for (case, bits) in INTEGERS.into_iter().cycle().take(9).enumerate() {
            let random_bits = RandomBits::ALL[case / 3];
            let top = (1u32 << bits) - 1;
            for (low, high) in [(0.0, 1.0), (-3.0, 5.0), (100.0, 101.0)] {
                let (scale, bias) = scale_and_bias(&[low, high], bits).unwrap();
                // Between the two lowest codes, two in the middle, and the two highest.
                for below in [0, top / 2, top - 1] {
                    for fraction in [0.3, 0.7] {
                        let x = bias + (below as f32 + fraction) * scale;
                        let v = (f64::from(x) - f64::from(bias)) / f64::from(scale);
                        let with = |rounding| {
                            is_unbiased(v, 1.0, random_bits, |k| {
                                let noise = Noise { random_bits, ..noise_of(rounding, k / 64) };
                                f64::from(code(x, scale, bias, bits, rounding, || noise.of(5, k % 64, false)))
                            })
                        };
                        assert!(with(Rounding::Stochastic), "{random_bits:?} {bits} {x}");
                        assert!(!with(Rounding::Nearest), "{random_bits:?} {bits} {x}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_moment_keeps_its_range_and_its_mean() {
        // One, a third, the largest and the smallest normal number, by hand: the fraction has 7 bits, or 8 without a sign.
        assert_eq!([1.0, -1.0, f32::MIN_POSITIVE].map(|x| moment_from_f32(x, true, 0)), [0x3f80, 0xbf80, 0x0080]);
        assert_eq!([1.0, f32::MIN_POSITIVE].map(|x| moment_from_f32(x, false, 0)), [0x7f00, 0x0100]);
        assert_eq!([0, u32::MAX].map(|noise| moment_from_f32(1.0 / 3.0, true, noise)), [0x3eab, 0x3eaa]);
        assert_eq!([true, false].map(|signed| moment_from_f32(f32::MAX, signed, 0)), [0x7f7f, 0xfeff]);
        let mut source = StdRng::seed_from_u64(3);
        for signed in [false, true] {
            for h in (0..=0xffff).filter(|h| f32_from_moment(*h, signed).is_finite() && h & 0x7fff != 0) {
                let x = f32_from_moment(h, signed);
                assert_eq!([0, u32::MAX].map(|noise| moment_from_f32(x, signed, noise)), [h, h], "{x} has a code");
            }
            // The mean over equally spaced noise is the value, to within a step over the number of noises.
            let error = |x: f32, round: &dyn Fn(f32, u32) -> u32| {
                let sum: f64 =
                    (0..1 << 12).map(|k| f64::from(f32_from_moment(round(x, k << 20 | 1 << 19), signed))).sum();
                (sum / 4096.0 / f64::from(x) - 1.0).abs()
            };
            let mut any = || source.random_range(1.0f32..2.0) * 2f32.powi(source.random_range(-60..60));
            let values: Vec<f32> = (0..300).map(|_| any()).collect();
            let worst = |round: &dyn Fn(f32, u32) -> u32| values.iter().map(|&x| error(x, round)).fold(0.0, f64::max);
            let bound = 2f64.powi(-7 - 12);
            assert!(worst(&|x, noise| moment_from_f32(x, signed, noise)) < bound);
            // To the nearest, an update of a thousandth is lost.
            assert!(worst(&|x, _| moment_from_f32(x, signed, 1 << 31)) > 1e-3);
        }
    }

    #[test]
    fn what_is_not_finite_is_refused() {
        for precision in Precision::ALL {
            let layout = layout_of(precision, OptimizerKind::AdaGrad, 3);
            for rounding in [Rounding::Nearest, Rounding::Stochastic] {
                let refused = |weights: &[f32], state: &[f32]| {
                    let mut record = vec![0xdead_beef; layout.record_words as usize];
                    let taken = pack(&layout, &noise_of(rounding, 1), 3, weights, state, &mut record);
                    assert!(taken || record.iter().all(|&word| word == 0xdead_beef), "{precision:?}");
                    !taken
                };
                for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    for at in 0..3 {
                        let mut values = [1.0; 3];
                        values[at] = bad;
                        assert!(refused(&values, &[0.0; 3]), "{precision:?} {bad}");
                        assert!(refused(&[0.0; 3], &values), "{precision:?} {bad}");
                    }
                }
                assert_eq!(refused(&[-3e38, 0.0, 3e38], &[0.0; 3]), precision.is_integer(), "{precision:?}");
                assert!(!refused(&[-1e38, 0.0, 1e38], &[0.0; 3]), "{precision:?}");
                // The state may have any range.
                assert!(!refused(&[0.0; 3], &[-3e38, 0.0, 3e38]), "{precision:?}");
            }
        }
    }

    #[test]
    fn every_layout_keeps_weights_and_state() {
        for precision in Precision::ALL {
            for kind in OptimizerKind::ALL {
                for dim in [1, 2, 3, 5, 7, 8, 31, 33, 128] {
                    let layout = layout_of(precision, kind, dim);
                    let bits = precision.bits();
                    let facts = kind.facts();
                    let full = precision == Precision::Fp32 || facts.full_states;
                    let each = if full { 4 * dim } else { 2 * dim };
                    let state_bytes = each * facts.states.len() as u32 + if facts.of_row { 4 } else { 0 };
                    let head = if precision.is_integer() { 8 } else { 0 };
                    let bytes = (dim * bits).div_ceil(8) + head + state_bytes;
                    assert_eq!(layout.stride(), u64::from(bytes.next_multiple_of(4)), "{precision:?} {kind:?} {dim}");

                    // Values that every precision represents: for integers `1 + code / 4`, with both end codes used.
                    let top = if precision.is_integer() { (1 << bits) - 1 } else { 255 };
                    let weights: Vec<f32> = (0..dim)
                        .map(|e| match e {
                            0 if dim > 1 => top,
                            1 => 0,
                            _ => (e * 7 + 3) % (top + 1),
                        })
                        .map(|code| 1.0 + code as f32 / 4.0)
                        .collect();
                    let state: Vec<f32> = (0..layout.state).map(|e| (e + 1) as f32 / 8.0).collect();
                    for rounding in [Rounding::Nearest, Rounding::Stochastic] {
                        // Stale bits of the record must be overwritten.
                        let mut record = vec![u32::MAX; layout.record_words as usize];
                        assert!(pack(&layout, &noise_of(rounding, 9), 3, &weights, &state, &mut record));
                        let row = unpacked(&layout, &record);
                        assert_eq!(row[dim as usize..], state, "{precision:?} {kind:?} {dim}");
                        for (found, wanted) in row.iter().zip(&weights) {
                            // The scale is a rounded product: off by one or two ULP of the value.
                            assert!(
                                (found - wanted).abs() <= 2e-7 * wanted,
                                "{precision:?} {kind:?} {dim}: {found} {wanted}"
                            );
                        }
                    }
                }
            }
        }
    }

    /// Values of 3 bits of fraction, which every code keeps as they are.
    #[test]
    fn coded_states_lie_behind_their_scales() {
        use crate::config::{Optimizer, StatePrecision};
        for precision in [Precision::Fp16, Precision::Int8, Precision::Int4, Precision::Int2] {
            for kind in OptimizerKind::ALL {
                for dim in [1, 2, 3, 5, 8, 33] {
                    let optimizer = Optimizer::sgd(0.1).with_kind(kind);
                    let layout = RowLayout::of(dim, precision, &optimizer, Some(StatePrecision::Int8));
                    let each = layout.state - layout.scalars;
                    let (first, behind) = (layout.state_word + layout.scalars, if each == 0 { 0 } else { 1 });
                    assert_eq!(layout.payload_half, 2 * (first + behind) + each.div_ceil(2), "{kind:?} {dim}");
                    let size = |e: u32| (1.0 + (e % 8) as f32 / 8.0) / (1 << (e % 5)) as f32;
                    let signed = |e: u32| layout.is_signed(e);
                    let state: Vec<f32> = (0..layout.state)
                        .map(|e| match e {
                            _ if e >= each => 0.3 + e as f32,
                            _ if signed(e) => size(e) * if e % 2 == 0 { -1.0 } else { 1.0 },
                            _ => size(e + 3) * 524_288.0,
                        })
                        .collect();
                    let mut record = vec![u32::MAX; layout.record_words as usize];
                    assert!(pack(
                        &layout,
                        &noise_of(Rounding::Stochastic, 9),
                        3,
                        &vec![1.5; dim as usize],
                        &state,
                        &mut record
                    ));
                    let row = unpacked(&layout, &record);
                    assert_eq!(
                        (&row[..dim as usize], &row[dim as usize..]),
                        (&*vec![1.5; dim as usize], &*state),
                        "{precision:?} {kind:?}"
                    );
                    if each == 0 {
                        continue;
                    }
                    // The bases of both kinds of codes, and no code between the last one and the weights.
                    let largest = |of: bool| {
                        (0..each).filter(|&e| signed(e) == of).map(|e| state[e as usize].abs().to_bits()).max()
                    };
                    let base = |of| largest(of).map_or(0, |largest| state_code::base(largest, of));
                    assert_eq!(record[first as usize], base(true) << 16 | base(false), "{kind:?}");
                    let bytes: &[u8] = bytemuck::cast_slice(&record);
                    let codes = 4 * (first as usize + 1);
                    assert!(
                        bytes[codes + each as usize..2 * layout.payload_half as usize].iter().all(|&byte| byte == 0)
                    );
                    for e in 0..each {
                        let code = u32::from(bytes[codes + e as usize]);
                        assert_eq!(
                            state_code::value(code, base(signed(e)), signed(e)),
                            state[e as usize],
                            "{kind:?} {e}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn noise_of_a_state_is_that_of_the_next_purpose() {
        let mut noise = noise_of(Rounding::Stochastic, 4);
        noise.stripe = Stripe { shift: 3, first: 5 };
        let of = |purpose| rng::noise(noise.random_bits, 11, 4, 8 * 6 + 5, 7, purpose);
        let update = rng::Purpose::Update as u32;
        assert_eq!((noise.of(6, 7, false), noise.of(6, 7, true)), (of(update), of(update + 1)));
        assert_ne!(of(update), of(update + 1));
    }

    #[test]
    fn a_code_goes_up_if_its_fraction_is_above_the_noise() {
        for (x, threshold) in [(0.5, 1 << 31), (7.25, 1 << 30), (2.75, 3 << 30)] {
            let code = |noise: u32| code(x, 1.0, 0.0, 8, Rounding::Stochastic, || noise);
            let below = x as u32;
            assert_eq!([threshold - 1, threshold].map(code), [below + 1, below], "{x}");
        }
    }
}
