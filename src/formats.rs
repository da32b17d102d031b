//! The formats of packed rows as values (SPEC 2): what layouts, checks, files, memory and the texts of shaders ask of a precision.

/// The type of the scale and the bias of a block: together they are its *head*.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    /// Weights are floats, without a head.
    None,
    /// Two FP32.
    Fp32,
    /// Two FP16, the scale in the lower half of a word.
    Fp16,
}

/// A format of packed rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Format {
    /// Bits of a stored weight.
    pub(crate) bits: u32,
    /// Weights under one head, neighbours; 0: the whole row.
    pub(crate) block: u32,
    /// The type of a head.
    pub(crate) head: Head,
    /// Whether rows train: a group of another format only looks up.
    pub(crate) trains: bool,
    /// The largest magnitude of a row that is stored; a row beyond it is refused.
    pub(crate) most: f32,
    /// Its file in `shaders/formats/`.
    pub(crate) shader: &'static str,
}

impl Format {
    /// A format whose rows train, with at most one head a row.
    pub(crate) const fn row(bits: u32, head: Head) -> Self {
        Self { bits, block: 0, head, trains: true, most: f32::MAX, shader: "row" }
    }

    /// Weights under one head in a row of `dim`.
    pub(crate) const fn block_of(&self, dim: u32) -> u32 {
        if self.block == 0 { dim } else { self.block }
    }

    /// Bytes of the heads of a row of `dim` weights.
    pub(crate) const fn head_bytes(&self, dim: u32) -> u32 {
        let blocks = if self.block == 0 { 1 } else { dim.div_ceil(self.block) };
        match self.head {
            Head::None => 0,
            Head::Fp32 => 8 * blocks,
            Head::Fp16 => 4 * blocks,
        }
    }

    /// The word by which files of tables tell formats apart: bits of a weight, weights of a block, type of the heads. Of floats of 16 and 32 bits, and
    /// of codes with one head of FP32 a row, it is the bits of a weight.
    pub(crate) const fn word(&self) -> u32 {
        let head = match self.head {
            Head::None if self.bits < 16 => 2,
            Head::None | Head::Fp32 => 0,
            Head::Fp16 => 1,
        };
        self.bits | self.block << 8 | head << 24
    }
}
