//! binary16 without branches, for loops that become vector code. [`crate::record::codec`] has the readable versions.

use multiversion::multiversion;

use crate::record::rows::INFINITE;

/// 2^112: multiplies a half's exponent, placed where a float's exponent lies, to its value.
const LIFT: f32 = f32::from_bits((112 + 127) << 23);
const SIGN: u32 = 1 << 31;
/// 65504, the largest half.
const LARGEST: u32 = 0x477f_e000;
/// 2^-14, the smallest normal half.
const NORMAL: u32 = 113 << 23;

/// [`crate::record::codec::f32_from_half`]: the product is exact, for subnormal halves too.
#[inline(always)]
pub(crate) fn widen(h: u16) -> f32 {
    // The arithmetic shift copies the sign into bits 28 to 31; the mask keeps the last of them.
    let bits = (i32::from(h.cast_signed()) << 13) as u32 & 0x8fff_ffff;
    f32::from_bits(bits) * LIFT
}

/// [`crate::record::codec::half_from_f32`] with `Rounding::Nearest`.
#[inline(always)]
pub(crate) fn nearest(x: f32) -> u16 {
    let bits = x.to_bits();
    let magnitude = (bits & !SIGN).min(LARGEST);
    // Adds half an ULP less one bit, and that bit if the last kept bit is odd: ties go to even.
    let normal = (magnitude + 0xfff + (magnitude >> 13 & 1)).wrapping_sub(112 << 23) >> 13;
    // Adding 0.5 makes the float unit round at 2^-24, the last bit of a subnormal half, to nearest with ties to even.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits() - 0.5f32.to_bits();
    let rounded = if magnitude < NORMAL { subnormal } else { normal };
    (bits >> 16 & 0x8000 | rounded) as u16
}

/// An output as a half: [`nearest`], but infinity stays infinite, and every NaN becomes 0x7e00.
#[inline(always)]
fn of_output(x: f32) -> u16 {
    let (rounded, magnitude) = (nearest(x), x.to_bits() & !SIGN);
    let rounded = if magnitude >= INFINITE { rounded & 0x8000 | 0x7c00 } else { rounded };
    if magnitude > INFINITE { 0x7e00 } else { rounded }
}

/// Rounds outputs to halves.
#[multiversion(targets = "simd")]
pub(crate) fn round_outputs(outputs: &[f32], halves: &mut [u16]) {
    halves.iter_mut().zip(outputs).for_each(|(half, output)| *half = of_output(*output));
}

/// [`crate::record::codec::half_from_f32`] with `Rounding::Stochastic`: goes up if `noise` is below the fraction that
/// is cut off.
#[inline(always)]
pub(crate) fn stochastic(x: f32, noise: u32) -> u16 {
    let bits = x.to_bits();
    // Magnitudes are clamped to the largest half, which has nothing cut off.
    let magnitude = (bits & !SIGN).min(LARGEST);
    let exponent = magnitude >> 23;
    let mantissa = magnitude & 0x7f_ffff | 0x80_0000;
    // A subnormal half loses so many more bits. The smallest exponent of a normal half is 113.
    let exponent_kept = exponent.max(NORMAL >> 23);
    let deep = exponent_kept - exponent;
    let below = right(mantissa, 13 + deep);
    let cut = left(mantissa, 19u32.wrapping_sub(deep)) | right(mantissa, deep.wrapping_sub(19));
    // The leading bit of a normal half adds one to its exponent.
    let magnitude = ((exponent_kept - (NORMAL >> 23)) << 10) + below + u32::from(noise < cut);
    (bits >> 16 & 0x8000 | magnitude) as u16
}

/// [`stochastic`] at half its cost, for zeros and values that are normal as halves. The bits cut off and the complement
/// of the noise are added and overflow into the kept bits.
#[inline(always)]
pub(crate) fn stochastic_normal(x: f32, noise: u32) -> u16 {
    let bits = x.to_bits();
    let magnitude = (bits & !SIGN).min(LARGEST);
    let kept = (magnitude + (!noise >> 19)).wrapping_sub(112 << 23) >> 13;
    let kept = if magnitude == 0 { 0 } else { kept };
    (bits >> 16 & 0x8000 | kept) as u16
}

/// Whether [`stochastic_normal`] is right for all `values`.
#[inline(always)]
pub(crate) fn normal(values: &[f32]) -> bool {
    // Subtracting one sends zeros beyond all other magnitudes.
    values.iter().fold(u32::MAX, |least, x| (x.to_bits() & !SIGN).wrapping_sub(1).min(least)) >= NORMAL - 1
}

/// `x << n`; 0 from n = 32 on.
#[inline(always)]
fn left(x: u32, n: u32) -> u32 {
    if n < 32 { x << (n & 31) } else { 0 }
}

/// `x >> n`; 0 from n = 32 on.
#[inline(always)]
fn right(x: u32, n: u32) -> u32 {
    if n < 32 { x >> (n & 31) } else { 0 }
}
