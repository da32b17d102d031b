//! Weights in their stored form: floats, halves, or codes under a scale and a bias.

use crate::{
    host::trusted::{self, Widener},
    record::rows::half::widen,
    table::row::RowLayout,
};

/// The weights of one row, read a few at a time.
pub(crate) trait Weights: Copy {
    /// Returns weights `at .. at + N`. Either N is 1, or 8 divides both `at` and N.
    fn some<const N: usize>(self, at: usize) -> [f32; N];
}

/// The same columns of many rows.
pub(crate) trait Columns: Copy {
    /// The `N` weights of a row; `None` if there is no such row. N is as it was when the columns were chosen.
    fn of<const N: usize>(&self, row: u32) -> Option<[f32; N]>;
}

impl Columns for trusted::Columns<'_, f32> {
    #[inline(always)]
    fn of<const N: usize>(&self, row: u32) -> Option<[f32; N]> {
        self.of(row).map(|row| Floats(row).some(0))
    }
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

#[derive(Clone, Copy)]
pub(crate) struct HalfColumns<'a>(trusted::Columns<'a, u16>);

impl Columns for HalfColumns<'_> {
    #[inline(always)]
    fn of<const N: usize>(&self, row: u32) -> Option<[f32; N]> {
        self.0.of(row).map(|row| Halves(row).some(0))
    }
}

/// FP16, widened by the processor.
#[derive(Clone, Copy)]
pub(crate) struct WidenedColumns<'a, const WIDE: bool>(HalfColumns<'a>, Widener<WIDE>);

impl<const WIDE: bool> Columns for WidenedColumns<'_, WIDE> {
    #[inline(always)]
    fn of<const N: usize>(&self, row: u32) -> Option<[f32; N]> {
        let row = self.0.0.of(row)?;
        match <&[u16; N]>::try_from(row) {
            Ok(halves) if N.is_multiple_of(8) => Some(self.1.widen(halves)),
            _ => Some(Halves(row).some(0)),
        }
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

#[derive(Clone, Copy)]
pub(crate) struct CodeColumns<'a, const BITS: usize> {
    codes: trusted::Columns<'a, u8>,
    /// The scale and the bias.
    heads: trusted::Columns<'a, f32>,
    /// The first weight's place in its byte.
    at: usize,
}

impl<const BITS: usize> Columns for CodeColumns<'_, BITS> {
    #[inline(always)]
    fn of<const N: usize>(&self, row: u32) -> Option<[f32; N]> {
        let (bytes, head) = (self.codes.of(row)?, self.heads.of(row)?);
        Some(Codes::<BITS> { bytes, scale: head[0], bias: head[1] }.some(self.at))
    }
}

/// Codes of 4 bits in blocks of 32 under halves ([`crate::record::int4x32`]): a record, of which a fifth are heads.
#[derive(Clone, Copy)]
pub(crate) struct Blocks<'a>(&'a [u32]);

impl Weights for Blocks<'_> {
    #[inline(always)]
    fn some<const N: usize>(self, at: usize) -> [f32; N] {
        let (heads, codes) = self.0.split_at(self.0.len() / 5);
        std::array::from_fn(|j| {
            let (head, code) = (heads[(at + j) / 32], codes[(at + j) / 8] >> ((at + j) % 8 * 4) & 15);
            code as f32 * widen(head as u16) + widen((head >> 16) as u16)
        })
    }
}

/// Whole records, and the first weight that is read.
#[derive(Clone, Copy)]
pub(crate) struct BlockColumns<'a>(trusted::Columns<'a, u32>, usize);

impl Columns for BlockColumns<'_> {
    #[inline(always)]
    fn of<const N: usize>(&self, row: u32) -> Option<[f32; N]> {
        self.0.of(row).map(|record| Blocks(record).some(self.1))
    }
}

/// Many records of one layout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed<'a> {
    pub(crate) layout: &'a RowLayout,
    pub(crate) words: &'a [u32],
    /// Number of records.
    pub(crate) rows: usize,
}

impl<'a> Packed<'a> {
    pub(crate) fn new(layout: &'a RowLayout, words: &'a [u32]) -> Self {
        Self { layout, words, rows: words.len() / layout.record_words as usize }
    }

    /// Values `at .. at + len` of all records, read as values of type T.
    #[inline(always)]
    fn columns<T: bytemuck::AnyBitPattern>(self, at: usize, len: usize) -> trusted::Columns<'a, T> {
        let width = self.layout.record_words as usize * (size_of::<u32>() / size_of::<T>());
        trusted::Columns::new(bytemuck::cast_slice(self.words), self.rows, width, at, len)
    }
}

/// Finds the weights of a record of one precision.
pub(crate) trait Payload {
    /// The reader of the weights.
    type Weights<'a>: Weights;
    /// Bits of a weight.
    const BITS: usize;
    /// The weights of `record`.
    fn of<'a>(layout: &RowLayout, record: &'a [u32]) -> Self::Weights<'a>;
    /// The reader of the same weights of many records.
    type Columns<'a>: Columns;
    /// Weights `at .. at + n` of all records.
    fn columns(records: Packed<'_>, at: usize, n: usize) -> Self::Columns<'_>;
}

pub(crate) struct Fp32;
pub(crate) struct Fp16;
/// FP16 whose columns the processor widens. It takes the largest exponent for infinity and NaN. No record that hotrow packs has one, but a
/// file may; [`Fp16`] reads such halves as the shaders do.
pub(crate) struct WidenedFp16<const WIDE: bool>;
pub(crate) struct Int<const BITS: usize>;

impl Payload for Fp32 {
    type Weights<'a> = Floats<'a>;
    const BITS: usize = 32;
    #[inline(always)]
    fn of<'a>(layout: &RowLayout, record: &'a [u32]) -> Floats<'a> {
        Floats(bytemuck::cast_slice(&record[layout.payload_half as usize / 2..][..layout.dim as usize]))
    }
    type Columns<'a> = trusted::Columns<'a, f32>;
    #[inline(always)]
    fn columns(records: Packed<'_>, at: usize, n: usize) -> Self::Columns<'_> {
        records.columns(records.layout.payload_half as usize / 2 + at, n)
    }
}

impl Payload for Fp16 {
    type Weights<'a> = Halves<'a>;
    const BITS: usize = 16;
    #[inline(always)]
    fn of<'a>(layout: &RowLayout, record: &'a [u32]) -> Halves<'a> {
        let halves: &[u16] = bytemuck::cast_slice(record);
        Halves(&halves[layout.payload_half as usize..][..layout.dim as usize])
    }
    type Columns<'a> = HalfColumns<'a>;
    #[inline(always)]
    fn columns(records: Packed<'_>, at: usize, n: usize) -> HalfColumns<'_> {
        HalfColumns(records.columns(records.layout.payload_half as usize + at, n))
    }
}

impl<const WIDE: bool> Payload for WidenedFp16<WIDE> {
    type Weights<'a> = Halves<'a>;
    const BITS: usize = 16;
    #[inline(always)]
    fn of<'a>(layout: &RowLayout, record: &'a [u32]) -> Halves<'a> {
        Fp16::of(layout, record)
    }
    type Columns<'a> = WidenedColumns<'a, WIDE>;
    #[inline(always)]
    fn columns(records: Packed<'_>, at: usize, n: usize) -> WidenedColumns<'_, WIDE> {
        WidenedColumns(Fp16::columns(records, at, n), widener())
    }
}

/// The processor's instruction: [`WidenedFp16`] is taken only where there is one.
#[inline(always)]
fn widener<const WIDE: bool>() -> Widener<WIDE> {
    Widener::here().unwrap_or_else(|| unreachable!("a processor keeps its instructions"))
}

impl<const BITS: usize> Payload for Int<BITS> {
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
    type Columns<'a> = CodeColumns<'a, BITS>;
    #[inline(always)]
    fn columns(records: Packed<'_>, at: usize, n: usize) -> CodeColumns<'_, BITS> {
        let first = records.layout.payload_half as usize * 2;
        CodeColumns {
            codes: records.columns(first + at * BITS / 8, (n * BITS).div_ceil(8)),
            heads: records.columns(0, 2),
            at: if n == 1 { at * BITS % 8 / BITS } else { 0 },
        }
    }
}

pub(crate) struct Int4x32;

impl Payload for Int4x32 {
    type Weights<'a> = Blocks<'a>;
    const BITS: usize = 4;
    #[inline(always)]
    fn of<'a>(_: &RowLayout, record: &'a [u32]) -> Blocks<'a> {
        Blocks(record)
    }
    type Columns<'a> = BlockColumns<'a>;
    #[inline(always)]
    fn columns(records: Packed<'_>, at: usize, _: usize) -> BlockColumns<'_> {
        BlockColumns(records.columns(0, records.layout.record_words as usize), at)
    }
}

/// Calls `$work` with the [`Payload`] of a precision in place of `$format`: one loop for each precision, chosen once a
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
            $crate::config::Precision::Int4x32 => {
                type $format = $crate::record::rows::payload::Int4x32;
                $work
            }
        }
    };
}
pub(crate) use by_format;
