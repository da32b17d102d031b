//! binary16 without branches, for loops that become vectors. [`crate::codec`] has the readable versions.

/// 2^112: what lifts a half's exponent, put where a float's is, to its value.
const LIFT: f32 = f32::from_bits((112 + 127) << 23);
const SIGN: u32 = 1 << 31;
/// 65504, the largest half.
const LARGEST: u32 = 0x477f_e000;
/// 2^-14, the smallest normal half.
const NORMAL: u32 = 113 << 23;

/// [`crate::codec::f32_from_half`]: the product is exact, for subnormal halves too.
#[inline(always)]
pub(super) fn widen(h: u16) -> f32 {
    // The sign, copied into bits 28 to 31, stays in the last of them.
    let bits = (i32::from(h.cast_signed()) << 13) as u32 & 0x8fff_ffff;
    f32::from_bits(bits) * LIFT
}

/// [`crate::codec::half_from_f32`] to the nearest.
#[inline(always)]
pub(super) fn nearest(x: f32) -> u16 {
    let bits = x.to_bits();
    let magnitude = (bits & !SIGN).min(LARGEST);
    // Half an ULP less a bit, and that bit if the last one kept is odd: ties go to even.
    let normal = (magnitude + 0xfff + (magnitude >> 13 & 1)).wrapping_sub(112 << 23) >> 13;
    // Adding 0.5 makes the float unit round at 2^-24, a subnormal half's last bit. Its own rounding is to nearest, ties to even.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits() - 0.5f32.to_bits();
    let rounded = if magnitude < NORMAL { subnormal } else { normal };
    (bits >> 16 & 0x8000 | rounded) as u16
}

/// [`crate::codec::half_from_f32`] at random: up if `noise` is below the fraction that is cut off.
#[inline(always)]
pub(super) fn stochastic(x: f32, noise: u32) -> u16 {
    let bits = x.to_bits();
    let magnitude = (bits & !SIGN).min(LARGEST);
    let exponent = magnitude >> 23;
    let mantissa = magnitude & 0x7f_ffff | 0x80_0000;
    // Shifts beyond 31 give 0, as does 31 for a mantissa of 24 bits.
    let below = mantissa >> 126u32.saturating_sub(exponent).min(31);
    let cut = if exponent >= 95 {
        mantissa << (exponent.wrapping_sub(94) & 31)
    } else {
        mantissa >> 94u32.saturating_sub(exponent).min(31)
    };
    let (below, cut) =
        if exponent >= 113 { (magnitude.wrapping_sub(112 << 23) >> 13, bits << 19) } else { (below, cut) };
    // The largest half has nothing cut off once larger magnitudes are clamped to it.
    let cut = if magnitude == LARGEST { 0 } else { cut };
    (bits >> 16 & 0x8000 | (below + u32::from(noise < cut))) as u16
}
