//! FP32 rows to packed records, vectorised, with the bits of `record/codec.rs`.

use multiversion::multiversion;

use crate::{
    config::{Precision, RandomBits, Rounding},
    record::{
        codec::{self, Noise, inverse_steps},
        int4x32,
        rows::{
            INFINITE, MAGNITUDE,
            half::{nearest, normal, stochastic, stochastic_normal},
            lanes::{fold, padded},
        },
    },
    table::{rng, row::RowLayout},
};

/// Number of elements packed at once.
const BLOCK: usize = 64;
/// 2^23: a float of this size holds a whole number below 256 in its last bits.
const WHOLE: f32 = 8_388_608.0;

/// [`crate::record::codec::pack`], computed fast: packs a row into its record. Returns false and leaves the record
/// untouched if it cannot.
#[multiversion(targets = "simd")]
#[must_use]
pub fn pack(layout: &RowLayout, noise: &Noise, row: u32, weights: &[f32], state: &[f32], record: &mut [u32]) -> bool {
    pack_row(layout, noise, row, weights, state, record)
}

#[inline(always)]
pub(crate) fn pack_row(
    layout: &RowLayout,
    noise: &Noise,
    row: u32,
    weights: &[f32],
    state: &[f32],
    record: &mut [u32],
) -> bool {
    if !finite(weights) || !finite(state) {
        return false;
    }
    pack_finite(layout, noise, row, weights, state, record)
}

/// Packs a row whose values are known to be finite. The range of its weights may still overflow.
#[inline(always)]
pub(crate) fn pack_finite(
    layout: &RowLayout,
    noise: &Noise,
    row: u32,
    weights: &[f32],
    state: &[f32],
    record: &mut [u32],
) -> bool {
    let range = if layout.precision.is_integer() { Extent::of(weights) } else { Extent { low: 0.0, high: 0.0 } };
    if !(range.high - range.low).is_finite() {
        return false;
    }
    let random = Random { noise, row: noise.stripe.whole(row), purpose: noise.purpose };
    let (state, scalars) = state.split_at(state.len() - layout.scalars as usize);
    record[layout.state_word as usize..][..scalars.len()].copy_from_slice(bytemuck::cast_slice(scalars));
    let state_at = layout.state_word as usize + scalars.len();
    let payload_at = layout.payload_half as usize;
    if layout.state_bits == 8 {
        codec::pack_coded(layout, noise, row, state, record);
    } else if layout.state_bits == 16 && (layout.is_moment(0) || layout.is_moment(layout.dim)) {
        let halves: &mut [u16] = bytemuck::cast_slice_mut(&mut record[state_at..]);
        for ((e, &x), half) in (0..).zip(state).zip(halves) {
            *half = codec::state_half(layout, noise, row, e, x) as u16;
        }
    } else if layout.state_bits == 16 {
        let halves: &mut [u16] = bytemuck::cast_slice_mut(&mut record[state_at..]);
        if layout.precision == Precision::Fp16 && noise.rounding == Rounding::Stochastic && state.len() == weights.len()
        {
            // The state comes first, with no padding between state and weights.
            let (state_to, to) = halves.split_at_mut(state.len());
            let (to, padding) = to.split_at_mut(weights.len());
            pack_both(&random, [weights, state], [to, state_to]);
            padding.fill(0);
            return true;
        }
        let random = Random { purpose: noise.purpose + 1, ..random };
        pack_halves(&random, state, &mut halves[..state.len()]);
    } else {
        record[state_at..][..state.len()].copy_from_slice(bytemuck::cast_slice(state));
    }
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
        Precision::Int4x32 => return int4x32::pack(layout, weights, record, false),
    }
    true
}

#[inline(always)]
fn finite(values: &[f32]) -> bool {
    values.iter().fold(0, |largest, x| (x.to_bits() & MAGNITUDE).max(largest)) < INFINITE
}

/// The lowest and the highest of some values; zeros count as equal, whatever their sign.
struct Extent {
    low: f32,
    high: f32,
}

impl Extent {
    #[inline(always)]
    fn of(values: &[f32]) -> Self {
        const LANES: usize = 32;
        let mut lanes = ([f32::MAX; LANES], [f32::MIN; LANES]);
        let see = |(low, high): &mut ([f32; LANES], [f32; LANES]), block: &[f32; LANES]| {
            for j in 0..LANES {
                low[j] = if block[j] < low[j] { block[j] } else { low[j] };
                high[j] = if block[j] > high[j] { block[j] } else { high[j] };
            }
        };
        let (blocks, rest) = values.as_chunks::<LANES>();
        blocks.iter().for_each(|block| see(&mut lanes, block));
        if let Some(&first) = rest.first() {
            see(&mut lanes, &padded(rest, first));
        }
        let (low, high) = lanes;
        Self { low: fold(low, |a, b| if b < a { b } else { a }), high: fold(high, |a, b| if b > a { b } else { a }) }
    }
}

/// The rounding noise of a row.
#[derive(Clone, Copy)]
struct Random<'a> {
    noise: &'a Noise,
    row: u32,
    purpose: u32,
}

impl Random<'_> {
    /// [`rng::noise`] of the elements from `first` on. BLOCK divides `first`.
    #[inline(always)]
    fn block(&self, first: u32) -> [u32; BLOCK] {
        match self.noise.random_bits {
            RandomBits::TwentyFour => twenty_four(&self.hashes::<16>(first)),
            RandomBits::Sixteen => sixteen(&self.hashes::<8>(first), 0),
            RandomBits::Eight => eight(&self.hashes::<4>(first), 0),
        }
    }

    /// [`rng::noise`] of weights and of state. With few random bits both come from one vector of hashes.
    #[inline(always)]
    fn blocks(&self, first: u32) -> [[u32; BLOCK]; 2] {
        match self.noise.random_bits {
            RandomBits::TwentyFour => {
                let state = Self { purpose: self.purpose + 1, ..*self };
                [self.hashes::<16>(first), state.hashes::<16>(first)].map(|hashes| twenty_four(&hashes))
            }
            RandomBits::Sixteen => {
                let hashes = self.hashes::<8>(first);
                [0, 1].map(|part| sixteen(&hashes, part))
            }
            RandomBits::Eight => {
                let hashes = self.hashes::<4>(first);
                [0, 1].map(|part| eight(&hashes, part))
            }
        }
    }

    /// The `PER` hashes of the elements from `first` on, then the hashes of the next purpose, filling the longest vector. A
    /// shorter loop would be unrolled and not vectorised.
    #[inline(always)]
    fn hashes<const PER: u32>(&self, first: u32) -> Hashes {
        let first = first.wrapping_add(self.purpose << 24);
        let each = BLOCK as u32 / PER;
        let mut hashes = [[0; 4]; BLOCK / 4];
        for (j, words) in (0..).zip(&mut hashes) {
            let counter = first.wrapping_add(each * (j % PER) + ((j / PER) << 24));
            *words = rng::pcg4d([self.noise.seed, self.noise.step, self.row, counter]).map(rng::folded);
        }
        hashes
    }
}

type Hashes = [[u32; 4]; BLOCK / 4];

#[inline(always)]
fn twenty_four(hashes: &Hashes) -> [u32; BLOCK] {
    let parts: &[u32; BLOCK] = bytemuck::cast_ref(hashes);
    parts.map(|word| rng::centred(RandomBits::TwentyFour, word))
}

#[inline(always)]
fn sixteen(hashes: &Hashes, part: usize) -> [u32; BLOCK] {
    let parts: &[[u16; BLOCK]; 2] = bytemuck::cast_ref(hashes);
    parts[part].map(|half| rng::centred(RandomBits::Sixteen, u32::from(half) << 16))
}

#[inline(always)]
fn eight(hashes: &Hashes, part: usize) -> [u32; BLOCK] {
    let parts: &[[u8; BLOCK]; 4] = bytemuck::cast_ref(hashes);
    parts[part].map(|byte| rng::centred(RandomBits::Eight, u32::from(byte) << 24))
}

#[inline(always)]
fn pack_halves(random: &Random<'_>, values: &[f32], halves: &mut [u16]) {
    match random.noise.rounding {
        Rounding::Nearest => halves.iter_mut().zip(values).for_each(|(h, &x)| *h = nearest(x)),
        Rounding::Stochastic => {
            let (values, halves) = (values.chunks(BLOCK), halves.chunks_mut(BLOCK));
            for ((first, values), halves) in (0..).step_by(BLOCK).zip(values).zip(halves) {
                pack_block(&random.block(first), values, halves);
            }
        }
    }
}

/// Packs the weights and the state of a row, both in FP16.
#[inline(always)]
fn pack_both(random: &Random<'_>, weights: [&[f32]; 2], halves: [&mut [u16]; 2]) {
    let ([weights, state], [to, state_to]) =
        (weights.map(|values| values.chunks(BLOCK)), halves.map(|to| to.chunks_mut(BLOCK)));
    for (((first, weights), to), (state, state_to)) in
        (0..).step_by(BLOCK).zip(weights).zip(to).zip(state.zip(state_to))
    {
        let [noise, state_noise] = random.blocks(first);
        pack_block(&noise, weights, to);
        pack_block(&state_noise, state, state_to);
    }
}

/// Rounds at most BLOCK values stochastically.
#[inline(always)]
fn pack_block(noise: &[u32; BLOCK], values: &[f32], halves: &mut [u16]) {
    match (<&[f32; BLOCK]>::try_from(values), <&mut [u16; BLOCK]>::try_from(&mut *halves)) {
        (Ok(values), Ok(halves)) if normal(values) => {
            for j in 0..BLOCK {
                halves[j] = stochastic_normal(values[j], noise[j]);
            }
        }
        (Ok(values), Ok(halves)) => {
            for j in 0..BLOCK {
                halves[j] = stochastic(values[j], noise[j]);
            }
        }
        _ => halves.iter_mut().zip(values).zip(noise).for_each(|((h, &x), &noise)| *h = stochastic(x, noise)),
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
    let tolerance = codec::tolerance(scale, bias, BITS as u32);
    let coder = Coder { scale, bias, top: ((1u32 << BITS) - 1) as f32, tolerance, random };
    let (blocks, rest) = weights.as_chunks::<BLOCK>();
    let (whole, bytes) = bytes.split_at_mut(blocks.len() * (BLOCK * BITS / 8));
    let mut first = 0;
    for (block, bytes) in blocks.iter().zip(whole.chunks_exact_mut(BLOCK * BITS / 8)) {
        bytes.copy_from_slice(&squeezed::<BITS>(&coder.codes(block, first))[..BLOCK * BITS / 8]);
        first += BLOCK as u32;
    }
    if !rest.is_empty() {
        // Elements behind the row's end get code 0.
        let packed = squeezed::<BITS>(&coder.codes(&padded(rest, bias), first));
        bytes.copy_from_slice(&packed[..bytes.len()]);
    }
}

/// [`crate::record::codec::code`] for a row whose scale is not 0.
struct Coder<'a> {
    scale: f32,
    bias: f32,
    top: f32,
    tolerance: f32,
    random: &'a Random<'a>,
}

impl Coder<'_> {
    #[inline(always)]
    fn codes(&self, weights: &[f32; BLOCK], first: u32) -> [u8; BLOCK] {
        let mut codes = [0; BLOCK];
        let Self { scale, bias, top, tolerance, random } = *self;
        let stored = |x: f32| (x.clamp(0.0, top) + WHOLE).to_bits() as u8;
        match random.noise.rounding {
            Rounding::Nearest => {
                for j in 0..BLOCK {
                    codes[j] = stored(((weights[j] - bias) / scale).round_ties_even());
                }
            }
            Rounding::Stochastic => {
                // Within the tolerance of a whole number: noise would only turn a stored value into its neighbour.
                let noise = random.block(first);
                // A float has 24 bits, so the half bit of a noise of 24 bits is added separately. None of the
                // differences is rounded.
                let beyond = if random.noise.random_bits == RandomBits::TwentyFour { 2f32.powi(-25) } else { 0.0 };
                for j in 0..BLOCK {
                    let v = (weights[j] - bias) / scale;
                    let near = v.round_ties_even();
                    let below = v.floor();
                    let up = (v - below) - (noise[j] >> 8) as i32 as f32 * 2f32.powi(-24) > beyond;
                    let random = below + if up { 1.0 } else { 0.0 };
                    codes[j] = stored(if (v - near).abs() <= tolerance { near } else { random });
                }
            }
        }
        codes
    }
}

/// Packs codes side by side, into the first `BLOCK * BITS / 8` bytes of the result.
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
