//! The sizes of the messages between two ranks, by the table of SPEC 11, for expected counts.

use hotrow::ranks::Vectors;
use hotrow::{OptimizerKind, Pooling, Precision, internals::RowLayout};
use hotrow_dist::{WireForm, WireOptions};

const WORD: f64 = 4.0;

/// The phases of a step, in their order.
pub(super) const PHASES: [&str; 5] = ["counts", "requests", "sizes", "rows", "gradients"];

/// What decides the length of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wire {
    pub(super) dim: u32,
    pub(super) precision: Precision,
    pub(super) form: WireOptions,
    pub(super) pooling: Pooling,
    /// Whether each access has a weight.
    pub(super) weighted: bool,
    pub(super) ranks: u32,
    pub(super) shards: u32,
}

/// What a requester asks of one other rank in a step, in expectation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Asked {
    /// Distinct rows.
    pub(super) rows: f64,
    /// Those of them whose slots are dirty.
    pub(super) dirty: f64,
    /// Words of one bit a row, whole words for each shard.
    pub(super) bit_words: f64,
    pub(super) accesses: f64,
    /// Bags with an access there.
    pub(super) bags: f64,
    /// Pairs of a row and a slice of the batch that has it.
    pub(super) sums: f64,
}

impl Wire {
    /// Words of a packed row: a record without state.
    pub(super) fn packed_words(&self) -> u32 {
        RowLayout::new(self.dim, self.precision, OptimizerKind::Sgd).record_words
    }

    /// Words of a vector in this form.
    pub(super) const fn words(&self, form: WireForm) -> u32 {
        Vectors::gradients(self.dim, form, (0, 0)).words() as u32
    }

    /// Whether a packed row is shorter than one in the form of the others. If not, there are neither sizes nor bits.
    pub(super) fn packs(&self) -> bool {
        self.packed_words() < self.words(self.form.rows)
    }

    /// Virtual shards of a rank, which are also its slices of the batch.
    pub(super) const fn each(&self) -> u32 {
        self.shards / self.ranks
    }

    /// Bytes of the message of each phase between a requester and an owner.
    pub(super) fn bytes(&self, asked: &Asked) -> [f64; 5] {
        let Asked { rows, dirty, bit_words, accesses, bags, sums } = *asked;
        // Numbers of 16 bits fill whole words: half of the counts are odd.
        let halves = |count: f64| 0.5 * count + 0.25;
        let (plain, vector) = (f64::from(self.words(self.form.rows)), f64::from(self.words(self.form.gradients)));
        let (sizes, answer) = match self.packs() {
            true => (1.0, bit_words + (rows - dirty) * f64::from(self.packed_words()) + dirty * plain),
            false => (0.0, rows * plain),
        };
        let factors = match (self.weighted, self.pooling) {
            (true, _) => accesses,
            (false, Pooling::Mean) => bags,
            (false, Pooling::Sum | Pooling::None) => 0.0,
        };
        // A place has 16 bits where there are at most 65,536 bags.
        let places = if bags > 65_536.0 { accesses } else { halves(accesses) };
        // A rank with several slices says how many sums there are; else there is one of each row.
        let counts_sums = f64::from(u8::from(self.form.summed && self.each() > 1));
        let gradients = match self.form.summed {
            true => sums * vector + counts_sums * halves(rows),
            false => 1.0 + bags * vector + factors + places,
        };
        // Beside the shards: status, valid accesses, bags, bags with an access.
        let counts = f64::from(4 + self.each());
        [counts, 2.0 * rows + counts_sums, sizes, answer, gradients].map(|words| WORD * words)
    }
}
