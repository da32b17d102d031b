//! The bytes of the messages between two ranks, by the formulas of SPEC 11. It shares no code with the group that sends them.

use hotrow::dist::{WireForm, WireOptions};
use hotrow::{Pooling, Precision};

/// Bytes of a word.
const WORD: f64 = 4.0;

/// The most bags of a message whose places take 16 bits.
const NARROW: f64 = 65_536.0;

/// Words of the counts beside those of the shards: status, valid accesses, bags of a feature, bags with an access.
const HEAD: f64 = 4.0;

/// The phases of a step, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Counts,
    Requests,
    Sizes,
    Rows,
    Gradients,
}

impl Phase {
    pub(super) const ALL: [Self; 5] = [Self::Counts, Self::Requests, Self::Sizes, Self::Rows, Self::Gradients];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Counts => "counts",
            Self::Requests => "requests",
            Self::Sizes => "sizes",
            Self::Rows => "rows",
            Self::Gradients => "gradients",
        }
    }

    /// Whether the owner sends and the requester receives; else the other way round.
    pub(super) const fn is_answer(self) -> bool {
        matches!(self, Self::Sizes | Self::Rows)
    }
}

/// What decides the length of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wire {
    pub(super) dim: u32,
    pub(super) precision: Precision,
    pub(super) form: WireOptions,
    pub(super) pooling: Pooling,
    /// Whether each access has a weight.
    pub(super) weighted: bool,
    pub(super) features: u32,
    pub(super) ranks: u32,
    /// Virtual shards.
    pub(super) shards: u32,
}

/// What a requester asks of one other rank in a step: counts, or their expected values.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Asked {
    /// Distinct rows.
    pub(super) rows: f64,
    /// Those of them whose slots are dirty.
    pub(super) dirty: f64,
    /// Words of one bit a row, whole words for each shard.
    pub(super) bit_words: f64,
    pub(super) accesses: f64,
    /// Words of a place of 16 bits for each access.
    pub(super) half_words: f64,
    /// Bags with an access there.
    pub(super) bags: f64,
    /// Pairs of a row and a slice of the batch that has it.
    pub(super) sums: f64,
    /// Words of 16 bits for each row.
    pub(super) row_words: f64,
    /// Whether anything is asked; the probability of it.
    pub(super) any: f64,
}

impl Asked {
    pub(super) fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        self.dirty += other.dirty;
        self.bit_words += other.bit_words;
        self.accesses += other.accesses;
        self.half_words += other.half_words;
        self.bags += other.bags;
        self.sums += other.sums;
        self.row_words += other.row_words;
        self.any += other.any;
    }

    pub(super) fn times(self, factor: f64) -> Self {
        Self {
            rows: self.rows * factor,
            dirty: self.dirty * factor,
            bit_words: self.bit_words * factor,
            accesses: self.accesses * factor,
            half_words: self.half_words * factor,
            bags: self.bags * factor,
            sums: self.sums * factor,
            row_words: self.row_words * factor,
            any: self.any * factor,
        }
    }
}

impl Wire {
    /// Words of a packed row: scale and bias of integers, then the codes or halves in whole words.
    fn packed_words(&self) -> u32 {
        let codes = (u64::from(self.dim) * u64::from(self.precision.bits())).div_ceil(32) as u32;
        if self.precision.is_integer() { 2 + codes } else { codes }
    }

    /// Words of a vector in this form.
    pub(super) fn words(&self, form: WireForm) -> u32 {
        match form {
            WireForm::Exact => self.dim,
            WireForm::Fp16 => self.dim.div_ceil(2),
            WireForm::Int8 => 2 + self.dim.div_ceil(4),
        }
    }

    /// Whether a packed row is shorter than one in the form of the others. If not, there are neither sizes nor bits, and all rows have one length.
    pub(super) fn packs(&self) -> bool {
        self.packed_words() < self.words(self.form.rows)
    }

    /// Slices of the batch of a rank.
    pub(super) const fn slices(&self) -> u32 {
        self.shards / self.ranks
    }

    /// Whether a message says how many sums there are: else there is one of each row.
    const fn counts_sums(&self) -> bool {
        self.form.summed && self.slices() > 1
    }

    /// Bytes of a row in FP32.
    pub(super) fn row_bytes(&self) -> f64 {
        WORD * f64::from(self.dim)
    }

    /// Bytes of rows, of which `dirty` are not their records. The others go packed, if that is shorter.
    pub(super) fn rows_bytes(&self, rows: f64, dirty: f64) -> f64 {
        let plain = WORD * f64::from(self.words(self.form.rows));
        if !self.packs() {
            return rows * plain;
        }
        (rows - dirty) * WORD * f64::from(self.packed_words()) + dirty * plain
    }

    /// Bytes of the sizes and rows of so many pairs of ranks, which ask for `asked` together.
    pub(super) fn answer_bytes(&self, asked: &Asked, pairs: f64) -> f64 {
        let beside = if self.packs() { WORD * (pairs + asked.bit_words) } else { 0.0 };
        beside + self.rows_bytes(asked.rows, asked.dirty)
    }

    /// Bytes of a request for so many rows: each row's number and count.
    pub(super) fn request_bytes(rows: f64) -> f64 {
        2.0 * WORD * rows
    }

    /// Bytes of the message of each phase between a requester and an owner.
    pub(super) fn bytes(&self, asked: &Asked) -> [f64; 5] {
        let Asked { rows, dirty, bit_words, accesses, half_words, bags, sums, row_words, any } = *asked;
        let counts = HEAD + f64::from(self.shards / self.ranks);
        let (sizes, bits) = if self.packs() { (1.0, bit_words) } else { (0.0, 0.0) };
        let places = if bags > NARROW { accesses } else { half_words };
        let factors = match (self.weighted, self.pooling) {
            (true, _) => accesses,
            (false, Pooling::Mean) => bags,
            (false, Pooling::Sum | Pooling::None) => 0.0,
        };
        let vector = f64::from(self.words(self.form.gradients));
        let counts_sums = f64::from(u8::from(self.counts_sums()));
        let gradients = if self.form.summed {
            sums * vector + counts_sums * row_words
        } else {
            f64::from(self.features) + bags * vector + factors + places
        };
        [
            WORD * counts,
            Self::request_bytes(rows) + WORD * counts_sums * any,
            WORD * sizes,
            WORD * bits + self.rows_bytes(rows, dirty),
            WORD * gradients,
        ]
    }

    /// Messages of a phase between a requester and an owner: an empty one is not sent.
    pub(super) fn messages(&self, phase: Phase, any: f64) -> f64 {
        match phase {
            Phase::Counts => 1.0,
            Phase::Gradients => {
                if self.form.summed {
                    any
                } else {
                    1.0
                }
            }
            Phase::Requests | Phase::Rows => any,
            Phase::Sizes => f64::from(u8::from(self.packs())),
        }
    }

    /// The rank that holds the shard.
    pub(super) const fn owner(&self, shard: u32) -> u32 {
        shard / (self.shards / self.ranks)
    }

    pub(super) const fn with_precision(self, precision: Precision) -> Self {
        Self { precision, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(dim: u32, precision: Precision) -> Wire {
        Wire {
            dim,
            precision,
            form: WireOptions::default(),
            pooling: Pooling::Sum,
            weighted: false,
            features: 3,
            ranks: 2,
            shards: 8,
        }
    }

    #[test]
    fn messages_are_as_long_as_worked_out_by_hand() {
        // 40 rows of one shard and 3 of another, 5 of them dirty; 99 accesses of 7 bags.
        let asked = Asked {
            rows: 43.0,
            dirty: 5.0,
            bit_words: 3.0,
            accesses: 99.0,
            half_words: 50.0,
            bags: 7.0,
            sums: 60.0,
            row_words: 22.0,
            any: 1.0,
        };
        let (counts, requests) = (4.0 * (4.0 + 4.0), 8.0 * 43.0);
        let bags = 4.0 * (3.0 + 7.0 * 16.0);
        for (precision, packed) in
            [(Precision::Fp16, 32.0), (Precision::Int8, 24.0), (Precision::Int4, 16.0), (Precision::Int2, 12.0)]
        {
            let rows = 12.0 + 38.0 * packed + 5.0 * 64.0;
            assert_eq!(wire(16, precision).bytes(&asked), [counts, requests, 4.0, rows, bags + 200.0], "{precision}");
            assert_eq!(wire(16, precision).answer_bytes(&asked, 1.0), 4.0 + rows, "{precision}");
        }
        let plain = [counts, requests, 0.0, 43.0 * 64.0, bags + 200.0];
        assert_eq!(wire(16, Precision::Fp32).bytes(&asked), plain);
        // Rounded rows: 8 words in FP16, 6 in INT8; INT8 records go packed where they are shorter.
        let rounded =
            |precision, rows| Wire { form: WireOptions { rows, ..Default::default() }, ..wire(16, precision) };
        assert_eq!(rounded(Precision::Fp32, WireForm::Fp16).bytes(&asked)[2..4], [0.0, 43.0 * 32.0]);
        assert_eq!(
            rounded(Precision::Int8, WireForm::Fp16).bytes(&asked)[2..4],
            [4.0, 12.0 + 38.0 * 24.0 + 5.0 * 32.0]
        );
        assert_eq!(rounded(Precision::Int8, WireForm::Int8).bytes(&asked)[2..4], [0.0, 43.0 * 24.0]);
        assert_eq!(rounded(Precision::Fp16, WireForm::Int8).bytes(&asked)[2..4], [0.0, 43.0 * 24.0]);
        // Rounded bag gradients; sums, whose number a rank with several slices sends.
        let gradients = WireOptions { gradients: WireForm::Int8, ..Default::default() };
        let mut sent = Wire { form: gradients, ..wire(16, Precision::Fp32) };
        assert_eq!(sent.bytes(&asked)[4], 4.0 * (3.0 + 7.0 * 6.0 + 50.0));
        sent.form.summed = true;
        assert_eq!((sent.bytes(&asked)[1], sent.bytes(&asked)[4]), (requests + 4.0, 4.0 * (60.0 * 6.0 + 22.0)));
        sent.ranks = 8;
        assert_eq!((sent.bytes(&asked)[1], sent.bytes(&asked)[4]), (requests, 4.0 * 60.0 * 6.0));
        // Mean has a factor for each bag, weights one for each access.
        let mut mean = Wire { pooling: Pooling::Mean, ..wire(16, Precision::Fp32) };
        assert_eq!(mean.bytes(&asked)[4], bags + 200.0 + 28.0);
        mean.weighted = true;
        assert_eq!(mean.bytes(&asked)[4], bags + 200.0 + 396.0);
        // From 65,537 bags on, places have 32 bits.
        let many = |bags| Asked { accesses: 1e5, half_words: 5e4, bags, ..asked };
        let places = |bags| mean.bytes(&many(bags))[4] - 4.0 * (3.0 + bags * 16.0 + 1e5);
        assert_eq!((places(65_536.0), places(65_537.0)), (2e5, 4e5));
    }

    #[test]
    fn rows_that_packing_makes_no_shorter_go_in_fp32() {
        for (dim, precision, packs) in [
            (2, Precision::Int8, false),
            (3, Precision::Int8, false),
            (4, Precision::Int8, true),
            (3, Precision::Int2, false),
            (4, Precision::Int2, true),
            (1, Precision::Fp16, false),
            (2, Precision::Fp16, true),
            (3, Precision::Fp16, true),
            (64, Precision::Fp32, false),
        ] {
            let wire = wire(dim, precision);
            assert_eq!(wire.packs(), packs, "{dim} {precision}");
            let asked = Asked { rows: 9.0, dirty: 2.0, bit_words: 1.0, any: 1.0, ..Asked::default() };
            let [_, _, sizes, rows, _] = wire.bytes(&asked);
            assert_eq!(sizes > 0.0, packs, "{dim} {precision}");
            assert_eq!(rows == 9.0 * 4.0 * f64::from(dim), !packs, "{dim} {precision}: {rows}");
            assert_eq!(wire.messages(Phase::Sizes, 1.0) > 0.0, packs);
        }
    }
}
