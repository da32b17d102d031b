//! Rows of integer codes in the two forms that FBGEMM reads. The codes are those of a record (SPEC 2), low bits of a byte first.
//!
//! | form | a row's bytes | scale and bias |
//! |---|---|---|
//! | fused, INT8 (`Fused8BitRowwise`) | codes, scale, bias | FP32 |
//! | fused, INT4 and INT2 (`FusedNBitRowwiseSBHalf`) | codes, scale, bias | FP16 |
//! | tbe (`IntNBitTableBatchedEmbeddingBagsCodegen`) | scale, bias, codes | FP16 |
//!
//! Rows with FP32 in place of FP16, or the other way round, are recognised when they are read.

use anyhow::ensure;
use hotrow::internals::codec::{f32_from_half, half_from_f32};
use hotrow::{Precision, Rounding, internals::RowLayout};
use std::ops::Range;

/// The place of scale and bias in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Behind the codes.
    Fused,
    /// Before the codes.
    Tbe,
}

impl Form {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Fused => "fused",
            Self::Tbe => "tbe",
        }
    }
}

/// What rounding scale and bias to FP16 changes in a table. The codes stay.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Change {
    /// The greatest change of a scale, relative to it.
    pub(crate) scale: f64,
    /// The greatest change of a bias.
    pub(crate) bias: f64,
    /// A bound of the change of every weight.
    pub(crate) weight: f64,
    /// Rows whose scale is 0 in FP16 only.
    pub(crate) lost_scales: u64,
}

impl Change {
    fn add(&mut self, [scale, bias]: [f32; 2], [new_scale, new_bias]: [f32; 2], top: u32) {
        let by = [new_scale - scale, new_bias - bias].map(f64::from);
        if scale != 0.0 {
            self.scale = self.scale.max((by[0] / f64::from(scale)).abs());
        }
        self.bias = self.bias.max(by[1].abs());
        self.weight = self.weight.max(by[1].abs()).max((f64::from(top) * by[0] + by[1]).abs());
        self.lost_scales += u64::from(scale != 0.0 && new_scale == 0.0);
    }
}

/// The bytes of a row of one table in a form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowForm {
    form: Form,
    precision: Precision,
    pub(crate) dim: u32,
    /// Bytes of a scale, and of a bias.
    pub(crate) number: usize,
}

/// What all rows of a table look like, read in a form.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Look {
    rows: u64,
    /// Rows that no quantiser writes.
    odd: u64,
    /// Rows whose weights differ.
    scaled: u64,
    /// Rows that tell FP16 from BF16, and those of them whose scale and bias are BF16.
    telling: u64,
    bf16: u64,
    /// Zeros with which every row ends.
    zeros: Option<usize>,
    /// A row whose padding is not zero.
    pub(crate) padded: Option<u64>,
    /// A row that is odd, its scale and its bias.
    pub(crate) first: Option<(u64, f32, f32)>,
}

impl Look {
    /// Whether the form is right but for a few rows.
    pub(crate) const fn may_be(&self) -> bool {
        self.padded.is_none() && 4 * self.odd <= self.rows
    }

    /// Whether the form fits every row.
    pub(crate) const fn fits(&self) -> bool {
        self.padded.is_none() && self.odd == 0 && self.scaled > 0
    }

    pub(crate) const fn is_bf16(&self) -> bool {
        self.bf16 > 0 && 16 * self.bf16 >= 15 * self.telling
    }

    /// Bytes with which every row ends that may be padding.
    pub(crate) fn zeros(&self) -> u64 {
        self.zeros.unwrap_or(0).min(15) as u64
    }
}

impl RowForm {
    /// The form of a table, or why it cannot hold one.
    pub(crate) fn new(form: Form, precision: Precision, dim: u32) -> anyhow::Result<Self> {
        let (name, remedy) = (form.name(), "take format npy or safetensors");
        ensure!(
            precision.is_integer(),
            "wanted precision int8, int4 or int2 in format {name}, found {precision}; {remedy}"
        );
        // FBGEMM's operators want whole words of 2 bytes before an FP16 scale; TBE wants whole bytes.
        let multiple = match (form, precision) {
            (Form::Fused, Precision::Int8) => 1,
            (Form::Fused, _) => 16 / precision.bits(),
            (Form::Tbe, _) => 8 / precision.bits(),
        };
        ensure!(
            dim.is_multiple_of(multiple),
            "wanted a dim that is a multiple of {multiple} in format {name} of {precision}, found {dim}; {remedy}"
        );
        let number = if Self::is_half(form, precision) { 2 } else { 4 };
        Ok(Self { form, precision, dim, number })
    }

    /// The row with scale and bias in FP32 in place of FP16, or the other way round.
    pub(crate) const fn other(self) -> Self {
        Self { number: 6 - self.number, ..self }
    }

    /// The form of a table whose rows have so many bytes, the usual one or the other; `None` if there is no such table.
    pub(crate) fn of_bytes(form: Form, precision: Precision, usual: bool, row_bytes: u64) -> Option<Self> {
        let head = if Self::is_half(form, precision) == usual { 4 } else { 8 };
        let values = row_bytes.checked_sub(head)?.checked_mul(8)? / u64::from(precision.bits());
        let dim = u32::try_from(values).ok().filter(|&dim| dim > 0)?;
        Self::new(form, precision, dim).ok().map(|row| if usual { row } else { row.other() })
    }

    fn is_half(form: Form, precision: Precision) -> bool {
        form == Form::Tbe || precision != Precision::Int8
    }

    fn payload(&self) -> usize {
        (u64::from(self.dim) * u64::from(self.precision.bits()) / 8) as usize
    }

    pub(crate) fn bytes(&self) -> usize {
        self.payload() + 2 * self.number
    }

    /// The places of the codes, of the scale and of the bias.
    fn places(&self) -> [Range<usize>; 3] {
        let (codes, number) = (self.payload(), self.number);
        let (codes, scale) = match self.form {
            Form::Fused => (0..codes, codes),
            Form::Tbe => (2 * number..2 * number + codes, 0),
        };
        [codes, scale..scale + number, scale + number..scale + 2 * number]
    }

    const fn top(&self) -> u32 {
        (1 << self.precision.bits()) - 1
    }

    /// Writes row `row` of a table, whose record this is, and adds what rounding changes.
    pub(crate) fn write(
        &self,
        layout: &RowLayout,
        row: u32,
        record: &[u32],
        out: &mut [u8],
        change: &mut Change,
    ) -> anyhow::Result<()> {
        let numbers = [record[0], record[1]].map(f32::from_bits);
        let [codes, scale, bias] = self.places();
        out[codes.clone()].copy_from_slice(&codes_of(layout, record)[..codes.len()]);
        if self.number == 4 {
            out[scale].copy_from_slice(&numbers[0].to_le_bytes());
            out[bias].copy_from_slice(&numbers[1].to_le_bytes());
            return Ok(());
        }
        for (what, found) in ["scale", "bias"].into_iter().zip(numbers) {
            ensure!(
                found.abs() <= MOST_HALF,
                "row {row}: wanted a {what} of at most 65504 in magnitude, as FP16 can hold, found {found}; take format npy or safetensors"
            );
        }
        let halves = numbers.map(|number| half_from_f32(number, Rounding::Nearest, || 0));
        out[scale].copy_from_slice(&halves[0].to_le_bytes()[..2]);
        out[bias].copy_from_slice(&halves[1].to_le_bytes()[..2]);
        change.add(numbers, halves.map(f32_from_half), self.top());
        Ok(())
    }

    fn numbers(&self, bytes: &[u8]) -> [f32; 2] {
        let [_, scale, bias] = self.places();
        [&bytes[scale], &bytes[bias]].map(|number| match *number {
            [a, b] => half(u16::from_le_bytes([a, b])),
            [a, b, c, d] => f32::from_le_bytes([a, b, c, d]),
            _ => f32::NAN,
        })
    }

    /// Looks at row `row` of a table.
    pub(crate) fn look(&self, row: u64, bytes: &[u8], look: &mut Look) {
        let [codes, at, _] = self.places();
        let ([scale, bias], top) = (self.numbers(bytes), self.top() as f32);
        look.rows += 1;
        if bytes[self.bytes()..].iter().any(|&byte| byte != 0) {
            look.padded.get_or_insert(row);
        }
        let differ = bytes[codes].iter().any(|&byte| byte != 0);
        let zeros = bytes.iter().rev().take_while(|&&byte| byte == 0).count();
        look.zeros = Some(look.zeros.map_or(zeros, |known| known.min(zeros)));
        // FP32 numbers must also be of a size that models have, and FP16 where FBGEMM writes FP32.
        let is_free = self.number == 2 && Self::is_half(self.form, self.precision);
        let sized = |x: f32| is_free || x == 0.0 || (2f32.powi(-40)..2f32.powi(20)).contains(&x.abs());
        let is_odd = !bias.is_finite() || !(top * scale + bias).is_finite() || scale == 0.0 && differ
            // FBGEMM writes a scale below 0 where the rounded bias of a constant row is above its values.
            || scale < 0.0 && -top * scale > bias.abs() * 2f32.powi(-8)
            || !sized(scale) || !sized(bias);
        look.odd += u64::from(is_odd);
        look.scaled += u64::from(scale > 0.0 && differ);
        if is_odd {
            look.first.get_or_insert((row, scale, bias));
        }
        // BF16 numbers from 2^-23 to 2^9 are 0.25 to 4 in FP16, and a ratio of two of them is its eighth root there. So the ratio of FP16 numbers is
        // its eighth power in BF16, far above what rows have, but for INT2. FBGEMM gives a row without codes a scale of 1.
        let bf16 = |at: usize| f32::from_bits(u32::from(u16::from_le_bytes([bytes[at], bytes[at + 1]])) << 16);
        if self.number == 2 && scale != 0.0 && (differ || bf16(at.start) == 1.0) {
            let most = if self.precision == Precision::Int2 && bias < 0.0 { 4.0 } else { 16_384.0 };
            let steps = bf16(at.end).abs() / bf16(at.start);
            let looks = !differ || steps == 0.0 || (2f32.powi(-8)..most).contains(&steps);
            look.telling += 1;
            look.bf16 += u64::from((0.25..4.0).contains(&scale) && looks);
        }
    }

    /// Makes the record of row `row` of these bytes. The optimiser's state is zero.
    pub(crate) fn read(&self, layout: &RowLayout, row: u32, bytes: &[u8], record: &mut [u32]) -> anyhow::Result<()> {
        let codes = self.places()[0].clone();
        let [scale, bias] = self.numbers(bytes);
        // SPEC 2: a scale below the normal numbers counts as 0, and so do its codes.
        let is_constant = scale.abs() < f32::MIN_POSITIVE;
        // FBGEMM writes a scale below 0 where the rounded bias of a constant row is above its values.
        ensure!(
            bias.is_finite() && (self.top() as f32 * scale + bias).is_finite(),
            "row {row}: wanted finite weights, found scale {scale} and bias {bias}; are format and precision right?"
        );
        record.fill(0);
        record[0] = if is_constant { 0 } else { scale.to_bits() };
        record[1] = if bias == 0.0 { 0 } else { bias.to_bits() };
        if !is_constant {
            let at = 2 * layout.payload_half as usize;
            bytemuck::cast_slice_mut::<u32, u8>(record)[at..][..codes.len()].copy_from_slice(&bytes[codes]);
        }
        Ok(())
    }
}

/// The greatest number of FP16.
const MOST_HALF: f32 = 65504.0;

/// A number of FP16, infinite or not a number too.
pub(crate) fn half(bits: u16) -> f32 {
    match bits & 0x7c00 {
        0x7c00 if bits & 0x3ff != 0 => f32::NAN,
        0x7c00 => f32::INFINITY,
        _ => f32_from_half(bits.into()),
    }
}

/// A record's bytes from its codes on.
fn codes_of<'r>(layout: &RowLayout, record: &'r [u32]) -> &'r [u8] {
    &bytemuck::cast_slice(record)[2 * layout.payload_half as usize..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotrow::OptimizerKind;

    #[test]
    fn forms_hold_whole_words_only() {
        for (form, precision, multiple) in [
            (Form::Fused, Precision::Int8, 1),
            (Form::Fused, Precision::Int4, 4),
            (Form::Fused, Precision::Int2, 8),
            (Form::Tbe, Precision::Int8, 1),
            (Form::Tbe, Precision::Int4, 2),
            (Form::Tbe, Precision::Int2, 4),
        ] {
            for dim in 1..=64 {
                let found = RowForm::new(form, precision, dim);
                assert_eq!(found.is_ok(), dim % multiple == 0, "{form:?} {precision} {dim}");
                let Ok(row) = found else { continue };
                let bytes = row.bytes() as u64;
                let dim_of = |bytes| RowForm::of_bytes(form, precision, true, bytes).map(|row| row.dim);
                assert_eq!(dim_of(bytes), Some(dim));
                // A row cut by a byte is one of the next smaller dim, or none.
                let smaller = dim - 8 / precision.bits();
                let wanted = (smaller > 0 && smaller.is_multiple_of(multiple)).then_some(smaller);
                assert_eq!(dim_of(bytes - 1), wanted);
            }
            assert!(RowForm::of_bytes(form, precision, true, 3).is_none());
            assert!(RowForm::new(form, Precision::Fp16, 8).is_err());
        }
    }

    /// A record of AdaGrad, whose state lies before the codes.
    fn record(layout: &RowLayout, scale: f32, bias: f32) -> Vec<u32> {
        let mut record = vec![0; layout.record_words as usize];
        (record[0], record[1]) = (scale.to_bits(), bias.to_bits());
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut record);
        bytes[8..].iter_mut().zip(1..).for_each(|(byte, k)| *byte = k);
        record
    }

    #[test]
    fn rounding_to_halves_is_counted_and_overflow_refused() {
        let layout = RowLayout::new(16, Precision::Int4, OptimizerKind::Sgd);
        let row = RowForm::new(Form::Fused, Precision::Int4, 16).unwrap();
        let mut bytes = vec![0; row.bytes()];
        let mut change = Change::default();
        let mut write = |scale: f32, bias: f32| {
            row.write(&layout, 7, &record(&layout, scale, bias), &mut bytes, &mut change).map(|()| change)
        };
        // FP16 has 1 and 1 + 2^-10; 1 + 2^-11 is a tie, which goes to even.
        let found = write(1.0 + 2f32.powi(-11), 2048.5).unwrap();
        let wanted = [2f64.powi(-11) / (1.0 + 2f64.powi(-11)), 0.5, 0.5 + 15.0 * 2f64.powi(-11)];
        assert_eq!([found.scale, found.bias, found.weight], wanted);
        assert_eq!(found.lost_scales, 0);
        assert_eq!(write(2f32.powi(-30), 0.0).unwrap().lost_scales, 1);
        assert!(write(65504.0, -65504.0).is_ok());
        let mut error = |scale, bias| write(scale, bias).unwrap_err().to_string();
        assert!(error(65505.0, 0.0).starts_with("row 7: wanted a scale of at most 65504"));
        assert!(error(1.0, -70000.0).contains("a bias of at most 65504 in magnitude, as FP16 can hold, found -70000"));
    }

    fn to_half(number: f32) -> u32 {
        let sign = number.to_bits() >> 16 & 0x8000;
        match number {
            _ if number.is_nan() => 0x7e00,
            _ if number.is_infinite() => sign | 0x7c00,
            _ => half_from_f32(number, Rounding::Nearest, || 0),
        }
    }

    #[test]
    fn rows_that_no_table_can_hold_are_refused() {
        for (form, precision) in
            [(Form::Fused, Precision::Int8), (Form::Fused, Precision::Int2), (Form::Tbe, Precision::Int8)]
        {
            let layout = RowLayout::new(16, precision, OptimizerKind::Sgd);
            let row = RowForm::new(form, precision, 16).unwrap();
            let [_, scale, bias] = row.places();
            let mut record = vec![0; layout.record_words as usize];
            let numbers = |numbers: [f32; 2]| {
                let mut bytes = vec![9; row.bytes()];
                for (place, number) in [&scale, &bias].into_iter().zip(numbers) {
                    let text: Vec<u8> = match place.len() {
                        2 => to_half(number).to_le_bytes()[..2].to_vec(),
                        _ => number.to_le_bytes().to_vec(),
                    };
                    bytes[place.clone()].copy_from_slice(&text);
                }
                bytes
            };
            for good in [[0.5, -1.0], [-0.5, 1.0]] {
                assert!(row.read(&layout, 3, &numbers(good), &mut record).is_ok());
            }
            for bad in [[f32::NAN, 0.0], [f32::INFINITY, 0.0], [1.0, f32::NAN], [1.0, f32::NEG_INFINITY]] {
                let found = row.read(&layout, 3, &numbers(bad), &mut record).unwrap_err().to_string();
                assert!(found.starts_with("row 3: wanted finite weights"), "{bad:?}: {found}");
            }
            // Without a scale all codes count as 0.
            row.read(&layout, 3, &numbers([0.0, 2.0]), &mut record).unwrap();
            assert_eq!(record[0], 0);
            assert!(record[2..].iter().all(|&word| word == 0));
        }
    }
}
