//! Weights in their stored form: floats, halves, or codes under a scale and a bias.

use crate::{record::rows::half::widen, table::row::RowLayout};

/// The weights of one row, read a few at a time.
pub(crate) trait Weights: Copy {
    /// Returns weights `at .. at + N`. Either N is 1, or 8 divides both `at` and N.
    fn some<const N: usize>(self, at: usize) -> [f32; N];
}

/// FP32.
#[derive(Clone, Copy)]
pub(crate) struct Floats<'a>(pub(crate) &'a [f32]);

impl Weights for Floats<'_> {
    #[inline(always)]
    fn some<const N: usize>(self, at: usize) -> [f32; N] {
        let from = &self.0[at..at + N];
        std::array::from_fn(|j| from[j])
    }
}

/// FP16.
#[derive(Clone, Copy)]
pub(crate) struct Halves<'a>(&'a [u16]);

impl Weights for Halves<'_> {
    #[inline(always)]
    fn some<const N: usize>(self, at: usize) -> [f32; N] {
        let from = &self.0[at..at + N];
        std::array::from_fn(|j| widen(from[j]))
    }
}

/// Integer codes of `BITS` bits.
#[derive(Clone, Copy)]
pub(crate) struct Codes<'a, const BITS: usize> {
    bytes: &'a [u8],
    scale: f32,
    bias: f32,
}

impl<const BITS: usize> Weights for Codes<'_, BITS> {
    #[inline(always)]
    fn some<const N: usize>(self, at: usize) -> [f32; N] {
        let from = &self.bytes[at * BITS / 8..][..(N * BITS).div_ceil(8)];
        let mask = (1 << BITS) - 1;
        std::array::from_fn(|j| {
            let code = match (BITS, N) {
                (8, _) => i32::from(from[j]),
                (_, 1) => i32::from(from[0]) >> (at * BITS % 8) & mask,
                // One word holds all of them; each has its own shift.
                (2, 8) => {
                    let word = from.as_chunks().0[0];
                    i32::from(u16::from_le_bytes(word)) >> (j * 2) & mask
                }
                _ => {
                    let each = 32 / BITS;
                    let word = from.as_chunks().0[j / each];
                    (u32::from_le_bytes(word) >> (j % each * BITS)) as i32 & mask
                }
            };
            code as f32 * self.scale + self.bias
        })
    }
}

/// Finds the weights of a record of one precision.
pub(crate) trait Format {
    /// The reader of the weights.
    type Weights<'a>: Weights;
    /// Bits of a weight.
    const BITS: usize;
    /// The weights of `record`.
    fn of<'a>(layout: &RowLayout, record: &'a [u32]) -> Self::Weights<'a>;
}

pub(crate) struct Fp32;
pub(crate) struct Fp16;
pub(crate) struct Int<const BITS: usize>;

impl Format for Fp32 {
    type Weights<'a> = Floats<'a>;
    const BITS: usize = 32;
    #[inline(always)]
    fn of<'a>(layout: &RowLayout, record: &'a [u32]) -> Floats<'a> {
        Floats(bytemuck::cast_slice(&record[layout.payload_half as usize / 2..][..layout.dim as usize]))
    }
}

impl Format for Fp16 {
    type Weights<'a> = Halves<'a>;
    const BITS: usize = 16;
    #[inline(always)]
    fn of<'a>(layout: &RowLayout, record: &'a [u32]) -> Halves<'a> {
        let halves: &[u16] = bytemuck::cast_slice(record);
        Halves(&halves[layout.payload_half as usize..][..layout.dim as usize])
    }
}

impl<const BITS: usize> Format for Int<BITS> {
    type Weights<'a> = Codes<'a, BITS>;
    const BITS: usize = BITS;
    #[inline(always)]
    fn of<'a>(layout: &RowLayout, record: &'a [u32]) -> Codes<'a, BITS> {
        let bytes: &[u8] = bytemuck::cast_slice(record);
        Codes {
            bytes: &bytes[layout.payload_half as usize * 2..][..(layout.dim as usize * BITS).div_ceil(8)],
            scale: f32::from_bits(record[0]),
            bias: f32::from_bits(record[1]),
        }
    }
}

/// Calls `$work` with the [`Format`] of a precision in place of `$format`: one loop for each precision, chosen once a
/// call.
macro_rules! by_format {
    ($precision:expr, $format:ident => $work:expr) => {
        match $precision {
            $crate::config::Precision::Fp32 => {
                type $format = $crate::record::rows::payload::Fp32;
                $work
            }
            $crate::config::Precision::Fp16 => {
                type $format = $crate::record::rows::payload::Fp16;
                $work
            }
            $crate::config::Precision::Int8 => {
                type $format = $crate::record::rows::payload::Int<8>;
                $work
            }
            $crate::config::Precision::Int4 => {
                type $format = $crate::record::rows::payload::Int<4>;
                $work
            }
            $crate::config::Precision::Int2 => {
                type $format = $crate::record::rows::payload::Int<2>;
                $work
            }
        }
    };
}
pub(crate) use by_format;
