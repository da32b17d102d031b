//! Rows on their way between ranks (SPEC 11): packed as in their records, without state, or in FP32.

use crate::{
    config::{OptimizerKind, Precision},
    error::Error,
    record::rows,
    table::row::RowLayout,
};

/// The form of rows between ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wire {
    /// A packed row: a record without state.
    packed: RowLayout,
}

impl Wire {
    pub(crate) const fn new(dim: u32, precision: Precision) -> Self {
        Self { packed: RowLayout::new(dim, precision, OptimizerKind::Sgd) }
    }

    /// Whether a packed row is shorter than one in FP32. Else all rows go in FP32.
    pub(crate) const fn packs(&self) -> bool {
        self.packed.record_words < self.packed.dim
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

    /// Adds the row whose record, of this layout, is the newest.
    pub(crate) fn push_record(&self, rows: &mut Rows, layout: &RowLayout, record: &[u32], out: &mut Vec<u32>) {
        if !self.packs() {
            let mut weights = vec![0.0; layout.dim as usize];
            rows::unpack(layout, record, &mut weights, &mut []);
            return self.push(rows, &weights, out);
        }
        out[rows.bits + rows.row / 32] |= 1 << (rows.row % 32);
        rows.row += 1;
        out.extend(&record[..self.packed.state_word as usize]);
        let halves: &[u16] = bytemuck::cast_slice(record);
        let payload = &halves[layout.payload_half as usize..];
        let words = (self.packed.record_words - self.packed.state_word) as usize;
        let half = |at: usize| payload.get(at).map_or(0, |&half| u32::from(half));
        out.extend((0..words).map(|word| half(2 * word) | half(2 * word + 1) << 16));
    }

    /// Adds a row in FP32.
    pub(crate) fn push(&self, rows: &mut Rows, weights: &[f32], out: &mut Vec<u32>) {
        rows.row += 1;
        out.extend(weights.iter().map(|weight| weight.to_bits()));
    }

    /// Takes `rows` rows off the list's front, as the bits of FP32 weights.
    pub(crate) fn take(&self, rows: usize, list: &mut &[u32], out: &mut Vec<u32>) -> Result<(), Error> {
        let dim = self.packed.dim as usize;
        let bits = cut(list, self.bit_words(rows))?;
        let mut weights = vec![0.0; dim];
        for row in 0..rows {
            if bits.get(row / 32).is_some_and(|word| word >> (row % 32) & 1 == 1) {
                rows::unpack(&self.packed, cut(list, self.packed.record_words as usize)?, &mut weights, &mut []);
                out.extend(weights.iter().map(|weight| weight.to_bits()));
            } else {
                out.extend(cut(list, dim)?);
            }
        }
        Ok(())
    }
}

/// A list of rows under way: where its bits are, and how many rows it has.
#[derive(Debug)]
pub(crate) struct Rows {
    bits: usize,
    row: usize,
}

/// Cuts `words` words off the front of a message.
pub(crate) fn cut<'w>(message: &mut &'w [u32], words: usize) -> Result<&'w [u32], Error> {
    let found = message.len();
    message.split_off(..words).ok_or_else(|| Error::Exchange {
        what: "message",
        wanted: format!("{words} more words"),
        found: found.to_string(),
        remedy: "run the same version of hotrow on all ranks",
    })
}
