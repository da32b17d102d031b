//! Int4x32 (SPEC 2): codes of 4 bits, for each 32 under a word with their scale and, above it, their bias in FP16. Always rounded to nearest: a row is rounded
//! once, when it is written. `shaders/formats/int4x32.wgsl` does the same on the device.

use crate::{record::search, table::row::RowLayout};

/// The value of a half: its exponent, placed where a float's lies, is 112 too small.
fn value(half: u32) -> f32 {
    f32::from_bits((half & 0x8000) << 16 | (half & 0x7fff) << 13) * 2f32.powi(112)
}

/// The half next to a magnitude of at most 65504: towards 0, or away from it if `up`; itself if it is one.
fn half_next_to(magnitude: f32, up: bool) -> u32 {
    let exponent = (magnitude.to_bits() >> 23).max(113);
    // In units of the half's last place, exactly: from 1024 on where it is normal.
    let units = magnitude / f32::from_bits((exponent - 10) << 23);
    ((exponent - 113) << 10) + if up { units.ceil() } else { units.floor() } as u32
}

/// Scale and bias of a block, as halves: the greatest bias that is no greater than the low end, and the least scale of which 15 reach from there to the high end.
fn head([low, high]: [f32; 2]) -> [u32; 2] {
    let bias = half_next_to(low.abs(), low < 0.0) | if low < 0.0 { 0x8000 } else { 0 };
    let range = high - value(bias);
    // The quotient may be rounded down onto a half.
    let scale = half_next_to((range / 15.0).abs(), true);
    [scale + u32::from(15.0 * value(scale) < range), bias]
}

/// The code of a weight.
fn code(x: f32, [scale, bias]: [f32; 2]) -> u32 {
    if scale == 0.0 { 0 } else { ((x - bias) / scale).round_ties_even().clamp(0.0, 15.0) as u32 }
}

/// Packs the weights of a row, which are finite; `searched`: each block under a searched range. Returns false and leaves the record untouched if one is beyond
/// 65504.
pub(crate) fn pack(layout: &RowLayout, weights: &[f32], record: &mut [u32], searched: bool) -> bool {
    if weights.iter().any(|x| x.abs() > layout.precision.format().most) {
        return false;
    }
    let decoder = |ends| {
        let [scale, bias] = head(ends).map(value);
        Some(move |x| code(x, [scale, bias]) as f32 * scale + bias)
    };
    let (heads, codes) = record.split_at_mut(layout.payload_half as usize / 2);
    for ((block, to), codes) in weights.chunks_exact(32).zip(heads).zip(codes.chunks_exact_mut(4)) {
        let whole = || block.iter().fold([f32::MAX, f32::MIN], |[low, high], &x| [low.min(x), high.max(x)]);
        let halves = head(if searched { search::range(block, decoder) } else { whole() });
        *to = halves[0] | halves[1] << 16;
        for (word, weights) in codes.iter_mut().zip(block.chunks_exact(8)) {
            *word = weights.iter().rev().fold(0, |word, &x| word << 4 | code(x, halves.map(value)));
        }
    }
    true
}
