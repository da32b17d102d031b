//! The layout of one row: in its record, and in FP32 in a slot.

pub use crate::rules::{STATE_MOMENT, STATE_SIGNED};
use crate::{
    config::{Optimizer, OptimizerKind, Precision, StatePrecision},
    rules::Facts,
};

/// Number of floats that an invocation moves at once: 4 if every row starts at a multiple of 16 bytes, else 1.
#[inline]
#[must_use]
pub const fn quad_width(dim: u32) -> u32 {
    if dim.is_multiple_of(4) { 4 } else { 1 }
}

/// Number of invocations that move a row of `dim` floats together: one for each Quad, but a power of two from 4 to 32.
pub(crate) const fn row_lanes(dim: u32) -> u32 {
    let quads = dim / quad_width(dim);
    if quads < 4 {
        4
    } else if quads > 32 {
        32
    } else {
        quads.next_power_of_two()
    }
}

/// The layout of one row: its record (weights packed, with the optimiser's state) and its FP32 form in a slot of the cache.
///
/// ```
/// use hotrow::{GroupConfig, Precision, internals::Layout};
///
/// let config = GroupConfig::new(&[1000], 64).with_precision(Precision::Int4);
/// let row = Layout::new(&config, u64::MAX)?.row;
/// assert_eq!(row.record_words * 4, 8 + 32); // bytes: scale and bias, then 64 codes of 4 bits
/// # Ok::<(), hotrow::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowLayout {
    /// Weights of a row.
    pub dim: u32,
    /// The type in which a weight is stored.
    pub precision: Precision,
    /// Weights under one scale and bias: dim, where a row has one of each.
    pub block: u32,
    /// Floats of optimiser state of a row: 0 to 2 for each weight, then [`scalars`](Self::scalars).
    pub state: u32,
    /// Floats of the state that belong to the row as a whole. A record has them first, always in FP32; a slot has them last.
    pub scalars: u32,
    /// Bits of each other float of the state in the record: 32; 16, which are FP16 or, for moments, a part of FP32; or 8, which are codes behind a
    /// word of their scales.
    pub state_bits: u32,
    /// Facts of an element's states, by which a record stores them (SPEC 3). Of the first: bit 0, it may be negative; bit 1, it is a moment and not
    /// a sum of squares. Bits 2 and 3 say the same of the second, or of the only one again.
    pub facts: u32,
    /// First word of the state in a record: behind the heads, the scale and the bias of each block.
    pub state_word: u32,
    /// First 16-bit half of the payload in a record.
    pub payload_half: u32,
    /// Stride of a record in words of 4 bytes.
    pub record_words: u32,
    /// Floats of a row in FP32: dim + state.
    pub row_words: u32,
    /// Stride of a slot in Quads of [`quad_width`] floats: weights, then state, each beginning at a Quad and padded with zeros.
    pub row_quads: u32,
    /// Number of invocations that move a row together.
    pub lanes: u32,
}

impl RowLayout {
    /// The layout of a row of `dim` weights for an optimiser of this kind with the settings of its constructor.
    #[must_use]
    pub const fn new(dim: u32, precision: Precision, kind: OptimizerKind) -> Self {
        let mut optimizer = Optimizer::sgd(0.0);
        optimizer.kind = kind;
        Self::of(dim, precision, &optimizer, None)
    }

    /// The layout of a row of `dim` weights for an optimiser whose state in a record has the type `state`, or the usual one.
    #[must_use]
    pub const fn of(dim: u32, precision: Precision, optimizer: &Optimizer, state: Option<StatePrecision>) -> Self {
        Self::by_facts(dim, precision, optimizer, optimizer.kind.facts(), state)
    }

    /// As [`of`](Self::of), for a rule with these facts.
    pub(crate) const fn by_facts(
        dim: u32,
        precision: Precision,
        optimizer: &Optimizer,
        facts: &Facts,
        state: Option<StatePrecision>,
    ) -> Self {
        let Facts { states, of_row, .. } = *facts;
        let each = states.len() as u32;
        let scalars = of_row as u32 + optimizer.counts_rows() as u32;
        let state_bits = match StatePrecision::chosen(precision, optimizer.kind, state) {
            _ if each == 0 => 32,
            StatePrecision::Fp32 => 32,
            StatePrecision::Fp16 => 16,
            StatePrecision::Int8 => 8,
        };
        let state = each * dim + scalars;
        let scales = (state_bits == 8) as u32;
        let format = precision.format();
        let state_word = format.head_bytes(dim).div_ceil(4);
        let payload_half = 2 * (state_word + scalars + scales) + (each * dim * (state_bits / 8)).div_ceil(2);
        let bits = payload_half as u64 * 16 + dim as u64 * precision.bits() as u64;
        let width = quad_width(dim);
        Self {
            dim,
            precision,
            block: format.block_of(dim),
            state,
            scalars,
            state_bits,
            facts: match states {
                [] => 0,
                [only] => *only | *only << 2,
                [first, second, ..] => *first | *second << 2,
            },
            state_word,
            payload_half,
            record_words: bits.div_ceil(32) as u32,
            row_words: dim + state,
            row_quads: dim / width + state.div_ceil(width),
            lanes: row_lanes(dim),
        }
    }

    /// The facts of float `e` of the state.
    const fn facts_of(&self, e: u32) -> u32 {
        if e < self.dim { self.facts } else { self.facts >> 2 }
    }

    /// Whether float `e` of the state may be negative.
    pub(crate) const fn is_signed(&self, e: u32) -> bool {
        self.facts_of(e) & STATE_SIGNED != 0
    }

    /// Whether float `e` of the state is a moment.
    pub(crate) const fn is_moment(&self, e: u32) -> bool {
        self.facts_of(e) & STATE_MOMENT != 0
    }

    /// Bytes of the state in a record.
    #[must_use]
    pub const fn state_bytes(&self) -> u64 {
        let scales = if self.state_bits == 8 { 4 } else { 0 };
        self.scalars as u64 * 4 + scales + (self.state - self.scalars) as u64 * (self.state_bits / 8) as u64
    }

    /// Floats of a Quad.
    #[must_use]
    pub const fn width(&self) -> u32 {
        quad_width(self.dim)
    }

    /// Number of rows that a workgroup moves at once.
    #[must_use]
    pub const fn at_once(&self) -> u32 {
        256 / self.lanes
    }

    /// Words of a record that a shader reads and writes at once: 4 if records of floats begin at multiples of 16 bytes, else 1.
    #[must_use]
    pub const fn item(&self) -> u32 {
        let floats = matches!(self.precision, Precision::Fp32 | Precision::Fp16) && self.state_bits != 8;
        let whole = self.scalars == 0 && self.width() == 4 && self.record_words.is_multiple_of(4);
        if floats && whole { 4 } else { 1 }
    }

    /// Stride of a slot in floats, its padding included.
    #[must_use]
    pub const fn slot_words(&self) -> u32 {
        self.row_quads * quad_width(self.dim)
    }

    /// Bytes of a slot, its padding included.
    #[must_use]
    pub const fn slot_bytes(&self) -> u64 {
        self.slot_words() as u64 * 4
    }

    /// Bytes of a record, optimiser state included.
    #[must_use]
    pub const fn stride(&self) -> u64 {
        self.record_words as u64 * 4
    }
}
