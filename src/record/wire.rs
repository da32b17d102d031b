//! Rows on their way between ranks (SPEC 11): packed as in their records, without state, or in FP32.

use std::{fmt, str::FromStr};

use crate::{
    config::{OptimizerKind, Precision, RandomBits, Rounding, named},
    error::Error,
    record::{codec::Noise, rows},
    stripe::Stripe,
    table::{rng::Purpose, row::RowLayout},
};

/// The form of vectors of floats between ranks.
///
/// Example: [`Shard`](crate::ranks::Shard).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WireForm {
    /// Nothing is lost.
    #[default]
    Exact,
    /// Rounded to FP16, stochastically. Magnitudes above 65504 become 65504.
    Fp16,
    /// Rounded to INT8 with a scale and a bias for each vector, stochastically.
    Int8,
}

named!(WireForm, "wire": Exact = "exact", Fp16 = "fp16", Int8 = "int8");

impl WireForm {
    /// The precision of a vector on the wire.
    pub(crate) const fn precision(self) -> Precision {
        match self {
            Self::Exact => Precision::Fp32,
            Self::Fp16 => Precision::Fp16,
            Self::Int8 => Precision::Int8,
        }
    }
}

/// A half that no finite value has: it marks an FP16 vector that could not be rounded.
const NO_HALF: u32 = 0x7e00;

/// Vectors of `dim` floats on their way between ranks, and their rounding.
///
/// Example: [`Shard`](crate::ranks::Shard).
#[derive(Clone, Copy, Debug)]
pub struct Vectors {
    layout: RowLayout,
    noise: Noise,
}

impl Vectors {
    /// Vectors of gradients. The random bits follow from the group's seed and a step.
    #[must_use]
    pub const fn gradients(dim: u32, form: WireForm, (seed, step): (u32, u32)) -> Self {
        Self::new(dim, form, (seed, step), Purpose::Wire as u32 + 1, Stripe::ALL)
    }

    const fn new(dim: u32, form: WireForm, (seed, step): (u32, u32), purpose: u32, stripe: Stripe) -> Self {
        let (rounding, random_bits) = (Rounding::Stochastic, RandomBits::TwentyFour);
        let noise = Noise { rounding, random_bits, seed, step, purpose, stripe };
        Self { layout: RowLayout::new(dim, form.precision(), OptimizerKind::Sgd), noise }
    }

    /// Words of a vector.
    #[must_use]
    pub const fn words(&self) -> usize {
        self.layout.record_words as usize
    }

    const fn is_exact(&self) -> bool {
        matches!(self.layout.precision, Precision::Fp32)
    }

    /// Adds a vector. `number` and `part` make its random bits its own. A vector that has no rounded form (a value is not finite, or its range overflows)
    /// arrives as NaN.
    pub fn push(&self, [number, part]: [u32; 2], values: &[f32], out: &mut Vec<u32>) {
        if self.is_exact() {
            return out.extend(values.iter().map(|value| value.to_bits()));
        }
        let first = out.len();
        out.resize(first + self.words(), 0);
        let record = &mut out[first..];
        let noise = Noise { seed: self.noise.seed.wrapping_add(part.wrapping_mul(0x9e37_79b9)), ..self.noise };
        if !rows::pack(&self.layout, &noise, number, values, &[], record) {
            record[0] = if self.layout.precision.is_integer() { f32::NAN.to_bits() } else { NO_HALF };
        }
    }

    /// Takes `vectors` vectors off the list's front, as the bits of floats: `[vectors, dim]`. `None` if the list is shorter.
    pub fn take(&self, vectors: usize, list: &mut &[u32], out: &mut Vec<u32>) -> Option<()> {
        if self.is_exact() {
            out.extend(list.split_off(..vectors * self.words())?);
            return Some(());
        }
        let mut values = vec![0.0; self.layout.dim as usize];
        for _ in 0..vectors {
            let record = list.split_off(..self.words())?;
            if !self.layout.precision.is_integer() && record[0] & 0xffff == NO_HALF {
                values.fill(f32::NAN);
            } else {
                rows::unpack(&self.layout, record, &mut values, &mut []);
            }
            out.extend(values.iter().map(|value| value.to_bits()));
        }
        Some(())
    }
}

/// The form of rows between ranks: what [`send_rows`](crate::ranks::Shard::send_rows) writes.
///
/// Example: [`Shard`](crate::ranks::Shard).
#[derive(Clone, Copy, Debug)]
pub struct Wire {
    /// A packed row: a record without state.
    packed: RowLayout,
    /// Any other row.
    plain: Vectors,
}

impl Wire {
    /// Rows of the piece that has these rows of the group.
    pub(crate) const fn new(
        dim: u32,
        precision: Precision,
        form: WireForm,
        (seed, step): (u32, u32),
        stripe: Stripe,
    ) -> Self {
        let packed = RowLayout::new(dim, precision, OptimizerKind::Sgd);
        Self { packed, plain: Vectors::new(dim, form, (seed, step), Purpose::Wire as u32, stripe) }
    }

    /// Rows of `dim` floats, in records of `precision`, that this rank takes off a message. They are rounded already.
    #[must_use]
    pub const fn received(dim: u32, precision: Precision, form: WireForm) -> Self {
        Self::new(dim, precision, form, (0, 0), Stripe::ALL)
    }

    /// Whether a packed row is shorter than another one. Else all rows go in the form of the others.
    #[must_use]
    pub const fn packs(&self) -> bool {
        self.packed.record_words < self.plain.layout.record_words
    }

    /// Words of a row that is not packed.
    #[must_use]
    pub const fn plain_words(&self) -> usize {
        self.plain.words()
    }

    /// Words of the bits that tell packed rows among `rows` rows from others.
    pub(crate) const fn bit_words(&self, rows: usize) -> usize {
        if self.packs() { rows.div_ceil(32) } else { 0 }
    }

    /// Begins a list of `rows` rows; [`push`](Self::push) adds them.
    pub(crate) fn begin(&self, rows: usize, out: &mut Vec<u32>) -> Rows {
        let bits = out.len();
        out.resize(bits + self.bit_words(rows), 0);
        Rows { bits, row: 0 }
    }

    /// Adds a row whose record, of this layout, is the newest.
    pub(crate) fn push_record(
        &self,
        rows: &mut Rows,
        layout: &RowLayout,
        row: u32,
        record: &[u32],
        out: &mut Vec<u32>,
    ) {
        let precision = self.plain.layout.precision;
        if !self.packs() && (self.plain.is_exact() || layout.precision as u32 != precision as u32) {
            let mut weights = vec![0.0; layout.dim as usize];
            rows::unpack(layout, record, &mut weights, &mut []);
            return self.push(rows, row, &weights, out);
        }
        if self.packs() {
            out[rows.bits + rows.row / 32] |= 1 << (rows.row % 32);
        }
        rows.row += 1;
        out.extend(&record[..self.packed.state_word as usize]);
        let halves: &[u16] = bytemuck::cast_slice(record);
        let payload = &halves[layout.payload_half as usize..];
        let words = (self.packed.record_words - self.packed.state_word) as usize;
        let half = |at: usize| payload.get(at).map_or(0, |&half| u32::from(half));
        out.extend((0..words).map(|word| half(2 * word) | half(2 * word + 1) << 16));
    }

    /// Adds a row of the piece that is not packed.
    pub(crate) fn push(&self, rows: &mut Rows, row: u32, weights: &[f32], out: &mut Vec<u32>) {
        rows.row += 1;
        self.plain.push([row, 0], weights, out);
    }

    /// Takes `rows` rows off the list's front, as the bits of FP32 weights: `[rows, dim]`. `None` if the list is shorter.
    pub fn take(&self, rows: usize, list: &mut &[u32], out: &mut Vec<u32>) -> Option<()> {
        let bits = list.split_off(..self.bit_words(rows))?;
        let mut weights = vec![0.0; self.packed.dim as usize];
        for row in 0..rows {
            if bits.get(row / 32).is_some_and(|word| word >> (row % 32) & 1 == 1) {
                rows::unpack(&self.packed, list.split_off(..self.packed.record_words as usize)?, &mut weights, &mut []);
                out.extend(weights.iter().map(|weight| weight.to_bits()));
            } else {
                self.plain.take(1, list, out)?;
            }
        }
        Some(())
    }
}

/// A list of rows under way: where its bits are, and how many rows it has.
#[derive(Debug)]
pub(crate) struct Rows {
    bits: usize,
    row: usize,
}
