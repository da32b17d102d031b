use multiversion::multiversion;

use super::{
    INFINITE, MAGNITUDE,
    half::{nearest, stochastic},
    lanes::{fold, padded},
};
use crate::{
    Layout, Precision, Rounding,
    codec::{Noise, inverse_steps},
    rng,
};

/// Elements packed at once.
const BLOCK: usize = 64;
/// 2^23: a float this large holds a whole number below 256 in its last bits.
const WHOLE: f32 = 8_388_608.0;

/// [`crate::codec::pack`] at speed: a row into its record, or false and the record untouched.
#[multiversion(targets = "simd")]
#[must_use]
pub fn pack(layout: &Layout, noise: &Noise, row: u32, weights: &[f32], state: &[f32], record: &mut [u32]) -> bool {
    pack_row(layout, noise, row, weights, state, record)
}

#[inline(always)]
pub(super) fn pack_row(
    layout: &Layout,
    noise: &Noise,
    row: u32,
    weights: &[f32],
    state: &[f32],
    record: &mut [u32],
) -> bool {
    let range = Extent::of(weights);
    let states = state.iter().fold(0, |largest, x| (x.to_bits() & MAGNITUDE).max(largest));
    if !range.finite || states >= INFINITE || (layout.precision.is_integer() && !(range.high - range.low).is_finite()) {
        return false;
    }
    let random = Random { noise, row, purpose: noise.purpose };
    let state_at = layout.state_word as usize;
    if layout.state_half {
        let random = Random { purpose: noise.purpose + 1, ..random };
        let halves: &mut [u16] = bytemuck::cast_slice_mut(&mut record[state_at..]);
        pack_halves(&random, state, &mut halves[..state.len()]);
    } else {
        record[state_at..][..state.len()].copy_from_slice(bytemuck::cast_slice(state));
    }
    let payload_at = layout.payload_half as usize;
    match layout.precision {
        Precision::Fp32 => record[payload_at / 2..][..weights.len()].copy_from_slice(bytemuck::cast_slice(weights)),
        Precision::Fp16 => {
            let halves: &mut [u16] = bytemuck::cast_slice_mut(record);
            let halves = &mut halves[payload_at..];
            pack_halves(&random, weights, &mut halves[..weights.len()]);
            halves[weights.len()..].fill(0);
        }
        Precision::Int8 => pack_codes::<8>(&random, &range, weights, record, payload_at),
        Precision::Int4 => pack_codes::<4>(&random, &range, weights, record, payload_at),
        Precision::Int2 => pack_codes::<2>(&random, &range, weights, record, payload_at),
    }
    true
}

/// Lowest, highest, largest magnitude.
type Lanes<const N: usize> = ([f32; N], [f32; N], [u32; N]);

/// Lowest and highest of some values; zeros count as equal, whatever their sign.
struct Extent {
    low: f32,
    high: f32,
    finite: bool,
}

impl Extent {
    #[inline(always)]
    fn of(values: &[f32]) -> Self {
        const LANES: usize = 32;
        let mut lanes: Lanes<LANES> = ([f32::MAX; LANES], [f32::MIN; LANES], [0; LANES]);
        let see = |(low, high, largest): &mut Lanes<LANES>, block: &[f32; LANES]| {
            for j in 0..LANES {
                low[j] = if block[j] < low[j] { block[j] } else { low[j] };
                high[j] = if block[j] > high[j] { block[j] } else { high[j] };
                largest[j] = largest[j].max(block[j].to_bits() & MAGNITUDE);
            }
        };
        let (blocks, rest) = values.as_chunks::<LANES>();
        blocks.iter().for_each(|block| see(&mut lanes, block));
        if let Some(&first) = rest.first() {
            see(&mut lanes, &padded(rest, first));
        }
        let (low, high, largest) = lanes;
        Self {
            low: fold(low, |a, b| if b < a { b } else { a }),
            high: fold(high, |a, b| if b > a { b } else { a }),
            finite: fold(largest, u32::max) < INFINITE,
        }
    }
}

/// A row's noise.
#[derive(Clone, Copy)]
struct Random<'a> {
    noise: &'a Noise,
    row: u32,
    purpose: u32,
}

impl Random<'_> {
    #[inline(always)]
    fn bits(&self, element: u32) -> u32 {
        rng::random(self.noise.seed, self.noise.step, self.row, element, self.purpose)
    }
}

#[inline(always)]
fn pack_halves(random: &Random<'_>, values: &[f32], halves: &mut [u16]) {
    match random.noise.rounding {
        Rounding::Nearest => halves.iter_mut().zip(values).for_each(|(h, &x)| *h = nearest(x)),
        Rounding::Stochastic => {
            for (e, (h, &x)) in (0..).zip(halves.iter_mut().zip(values)) {
                *h = stochastic(x, random.bits(e));
            }
        }
    }
}

#[inline(always)]
fn pack_codes<const BITS: usize>(
    random: &Random<'_>,
    range: &Extent,
    weights: &[f32],
    record: &mut [u32],
    payload_at: usize,
) {
    let scale = (range.high - range.low) * inverse_steps(BITS as u32);
    let scale = if scale < f32::MIN_POSITIVE { 0.0 } else { scale };
    let bias = if range.low == 0.0 { 0.0 } else { range.low };
    record[0] = scale.to_bits();
    record[1] = bias.to_bits();
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(record);
    let (bytes, tail) = bytes[2 * payload_at..].split_at_mut((weights.len() * BITS).div_ceil(8));
    tail.iter_mut().for_each(|byte| *byte = 0);
    if scale == 0.0 {
        return bytes.fill(0);
    }
    let coder = Coder { scale, bias, top: ((1u32 << BITS) - 1) as f32, random };
    let (blocks, rest) = weights.as_chunks::<BLOCK>();
    let (whole, bytes) = bytes.split_at_mut(blocks.len() * (BLOCK * BITS / 8));
    let mut first = 0;
    for (block, bytes) in blocks.iter().zip(whole.chunks_exact_mut(BLOCK * BITS / 8)) {
        bytes.copy_from_slice(&squeezed::<BITS>(&coder.codes(block, first))[..BLOCK * BITS / 8]);
        first += BLOCK as u32;
    }
    if !rest.is_empty() {
        // Behind the row's end: elements of code 0.
        let packed = squeezed::<BITS>(&coder.codes(&padded(rest, bias), first));
        bytes.copy_from_slice(&packed[..bytes.len()]);
    }
}

/// [`crate::codec::code`] for a row whose scale is not 0.
struct Coder<'a> {
    scale: f32,
    bias: f32,
    top: f32,
    random: &'a Random<'a>,
}

impl Coder<'_> {
    #[inline(always)]
    fn codes(&self, weights: &[f32; BLOCK], first: u32) -> [u8; BLOCK] {
        let mut codes = [0; BLOCK];
        let Self { scale, bias, top, random } = *self;
        let stored = |x: f32| (x.clamp(0.0, top) + WHOLE).to_bits() as u8;
        match random.noise.rounding {
            Rounding::Nearest => {
                for (code, x) in codes.iter_mut().zip(weights) {
                    *code = stored(((x - bias) / scale).round_ties_even());
                }
            }
            Rounding::Stochastic => {
                // As good as a whole number: the noise would only turn a stored value into its neighbour.
                let tolerance = (top + 1.0 + bias.abs() / scale) * 2f32.powi(-22);
                for (e, (code, x)) in (first..).zip(codes.iter_mut().zip(weights)) {
                    let v = (x - bias) / scale;
                    let near = v.round_ties_even();
                    let below = v.floor();
                    let up = (random.bits(e) >> 8) as i32 as f32 * 2f32.powi(-24) < v - below;
                    let random = below + if up { 1.0 } else { 0.0 };
                    *code = stored(if (v - near).abs() <= tolerance { near } else { random });
                }
            }
        }
        codes
    }
}

/// Codes side by side: the first `BLOCK * BITS / 8` bytes of the result.
#[inline(always)]
fn squeezed<const BITS: usize>(codes: &[u8; BLOCK]) -> [u8; BLOCK] {
    let each = 8 / BITS;
    let mut bytes = [0; BLOCK];
    for i in 0..BLOCK / each {
        for k in 0..each {
            bytes[i] |= codes[each * i + k] << (k * BITS);
        }
    }
    bytes
}
