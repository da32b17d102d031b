//! Where everything lies: the record of a row, the row of a slot, the shards of a table, and the structs that host and
//! shaders share. `tests/shaders.rs` compares the structs with the WGSL ones, member by member.

use bytemuck::{Pod, Zeroable};

use crate::{Error, GroupConfig, OptimizerKind, Precision};

/// Lanes, ways and bits: a set has 32 ways.
pub const WAYS: u32 = 32;
/// No row, no slot, no key.
pub const NONE: u32 = u32::MAX;
/// Words before the first table in the `tables` buffer; word 0 is the step number.
pub const CLOCK_WORDS: usize = 4;
/// Words of a table in the `tables` buffer: base, rows, then 13 counters of two words.
pub const TABLE_WORDS: usize = 28;

/// Which of [`Step::counts`] holds what.
pub mod count {
    #![allow(missing_docs, reason = "named as in shaders/shared/common.wgsl, where each is explained")]
    pub const INDICES: usize = 0;
    pub const UNIQUE: usize = 1;
    pub const VALID: usize = 2;
    pub const SETS: usize = 3;
    pub const MISSES: usize = 4;
    pub const SLOTS: usize = 5;
}

/// The uniform of a recorded call. Twin of `Params` in `shaders/shared/common.wgsl`, which explains each field.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[allow(missing_docs, reason = "explained at the WGSL twin")]
pub struct Params {
    pub indices: u32,
    pub bags: u32,
    pub bags_per_feature: u32,
    pub tables: u32,
    pub mode: u32,
    pub out_of_range: u32,
    pub pooling: u32,
    pub weighted: u32,
    pub sets: u32,
    pub slots: u32,
    pub policy: u32,
    pub seed: u32,
    pub dim: u32,
    pub bits: u32,
    pub stochastic: u32,
    pub state: u32,
    pub state_half: u32,
    pub state_word: u32,
    pub payload_half: u32,
    pub record_words: u32,
    pub row_words: u32,
    pub optimizer: u32,
    pub purpose: u32,
    pub total_rows: u32,
    pub lr: f32,
    pub eps: f32,
    pub weight_decay: f32,
    pub max_groups: u32,
}

/// What one call finds out on the device. Twin of `Step`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable, PartialEq, Eq)]
#[allow(missing_docs, reason = "explained at the WGSL twin")]
pub struct Step {
    pub t: u32,
    pub error: u32,
    pub error_position: u32,
    pub error_value: u32,
    pub error_table: u32,
    pub bad_index: u32,
    pub bad_offset: u32,
    pub accesses: u32,
    pub counts: [u32; 8],
}

/// One distinct row of a batch. Twin of `Unique`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable, PartialEq, Eq)]
#[allow(missing_docs, reason = "explained at the WGSL twin")]
pub struct Unique {
    pub row: u32,
    pub count: u32,
    pub key: u32,
    pub slot: u32,
}

/// One pass of the radix sort. Twin of `Pass`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[allow(missing_docs, reason = "explained at the WGSL twin")]
pub struct Pass {
    pub shift: u32,
    pub mask: u32,
    pub count: u32,
    pub capacity: u32,
    pub positions: u32,
}

/// A prefix sum of rows. Twin of `ScanInfo`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[allow(missing_docs, reason = "explained at the WGSL twin")]
pub struct ScanInfo {
    pub count: u32,
    pub capacity: u32,
    pub per_block: u32,
    pub rows: u32,
}

/// A sort, and perhaps dedup, of few keys. Twin of `SmallInfo`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[allow(missing_docs, reason = "explained at the WGSL twin")]
pub struct SmallInfo {
    pub capacity: u32,
    pub count: u32,
    pub mask: u32,
    pub positions: u32,
    pub dedup: u32,
    pub segments: u32,
    pub valid: u32,
    pub pad0: u32,
}

/// One dedup. Twin of `DedupInfo`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[allow(missing_docs, reason = "explained at the WGSL twin")]
pub struct DedupInfo {
    pub capacity: u32,
    pub count: u32,
    pub segments: u32,
    pub valid: u32,
}

/// How a list of rows is cut into shards. Twin of `BoundsInfo`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[allow(missing_docs, reason = "explained at the WGSL twin")]
pub struct BoundsInfo {
    pub shards: u32,
    pub rows_per_shard: u32,
    pub count: u32,
    pub sorted: u32,
    pub per_group: u32,
    pub max_groups: u32,
    pub pad0: u32,
    pub pad1: u32,
}

/// Which shard a dispatch works on. Twin of `Shard`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[allow(missing_docs, reason = "explained at the WGSL twin")]
pub struct Shard {
    pub index: u32,
    pub first_row: u32,
    pub pad0: u32,
    pub pad1: u32,
}

/// Fields of the cache's metadata: a set is 32 tags, 32 stamps, 32 freqs, 32 dirty flags (`shaders/shared/meta.wgsl`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Field {
    /// Linear row, [`NONE`] in an empty way.
    Tag = 0,
    /// Step that last touched it.
    Stamp = 1,
    /// Copy of the row's frequency (LFU).
    Freq = 2,
    /// 1: newer than the record.
    Dirty = 3,
}

/// Word of a slot's field in the metadata.
#[inline]
#[must_use]
pub const fn way_at(slot: u32, field: Field) -> usize {
    (slot as usize / 32) * 128 + field as usize * 32 + (slot as usize & 31)
}

/// The sizes that follow from a configuration: record, slot, sets, shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Floats in a row.
    pub dim: u32,
    /// How a weight is stored.
    pub precision: Precision,
    /// Floats of optimiser state a row: 0, 1 or dim.
    pub state: u32,
    /// True if the record holds the state as FP16.
    pub state_half: bool,
    /// First word of the state in a record: behind scale and bias.
    pub state_word: u32,
    /// First 16-bit half of the payload in a record.
    pub payload_half: u32,
    /// Stride of a record in words of 4 bytes.
    pub record_words: u32,
    /// Stride of a slot in floats: dim + state.
    pub row_words: u32,
    /// Sets of the cache, 0 without one.
    pub sets: u32,
    /// Linear rows.
    pub total_rows: u32,
    /// Rows of a shard; the last may hold fewer.
    pub rows_per_shard: u32,
    /// Shards of the table.
    pub shards: u32,
}

impl Layout {
    /// Checks the configuration and lays it out in shards of at most `shard_bytes`.
    ///
    /// # Errors
    /// [`Error::Config`] for what [`GroupConfig::check`] refuses, and for a shard too small for a record.
    pub fn new(config: &GroupConfig, shard_bytes: u64) -> Result<Self, Error> {
        config.check()?;
        let dim = config.dim;
        let state = match config.optimizer.kind {
            OptimizerKind::Sgd => 0,
            OptimizerKind::RowWiseAdaGrad => 1,
            OptimizerKind::AdaGrad => dim,
        };
        let state_half = config.optimizer.kind == OptimizerKind::AdaGrad && config.precision != Precision::Fp32;
        let state_word = if config.precision.is_integer() { 2 } else { 0 };
        let payload_half = 2 * state_word + if state_half { state } else { 2 * state };
        let bits = u64::from(payload_half) * 16 + u64::from(dim) * u64::from(config.precision.bits());
        let record_words = bits.div_ceil(32) as u32;
        let total_rows = config.total_rows() as u32;
        let stride = u64::from(record_words) * 4;
        let shard_bytes = config.shard_bytes.unwrap_or(u64::MAX).min(shard_bytes);
        let rows_per_shard = (shard_bytes / stride).min(u64::from(total_rows)) as u32;
        if rows_per_shard == 0 {
            return Err(Error::Config {
                field: "shard_bytes",
                wanted: format!("at least one record of {stride} bytes"),
                found: shard_bytes.to_string(),
            });
        }
        Ok(Self {
            dim,
            precision: config.precision,
            state,
            state_half,
            state_word,
            payload_half,
            record_words,
            row_words: dim + state,
            sets: config.cache_rows.div_ceil(WAYS),
            total_rows,
            rows_per_shard,
            shards: total_rows.div_ceil(rows_per_shard),
        })
    }

    /// Slots of the cache: 32 a set.
    #[must_use]
    pub const fn slots(&self) -> u32 {
        self.sets * WAYS
    }

    /// Bytes of a record, optimiser state included.
    #[must_use]
    pub const fn stride(&self) -> u64 {
        self.record_words as u64 * 4
    }

    /// Bytes of all records.
    #[must_use]
    pub const fn table_bytes(&self) -> u64 {
        self.stride() * self.total_rows as u64
    }

    /// Most distinct rows that a batch of `indices` can have.
    #[must_use]
    pub const fn most_distinct(&self, indices: u32) -> u32 {
        if indices < self.total_rows { indices } else { self.total_rows }
    }

    /// Rows of shard `shard`.
    #[must_use]
    pub fn shard_rows(&self, shard: u32) -> u32 {
        let first = u64::from(shard) * u64::from(self.rows_per_shard);
        u64::from(self.rows_per_shard).min(u64::from(self.total_rows) - first) as u32
    }

    /// Bits of a sort key that orders every linear row and puts [`NONE`] behind them all.
    #[must_use]
    pub const fn row_bits(&self) -> u32 {
        32 - self.total_rows.leading_zeros()
    }

    /// Bits of a sort key that orders every set and puts [`NONE`] behind them all.
    #[must_use]
    pub const fn set_bits(&self) -> u32 {
        32 - self.sets.leading_zeros()
    }
}

/// The `tables` buffer of a new group: t = 0, bases and rows, counters at zero.
pub(crate) fn table_words(config: &GroupConfig) -> Vec<u32> {
    let mut words = vec![0; CLOCK_WORDS + config.tables.len() * TABLE_WORDS];
    let mut base = 0;
    for (table, &rows) in config.tables.iter().enumerate() {
        words[CLOCK_WORDS + table * TABLE_WORDS] = base;
        words[CLOCK_WORDS + table * TABLE_WORDS + 1] = rows;
        // The sum fits: `GroupConfig::check` has seen to it.
        base = base.wrapping_add(rows);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys of `bits` low bits order `n` things, and NONE, cut to them, still sorts behind the last.
    fn right(bits: u32, n: u32) -> bool {
        let top = ((1u64 << bits) - 1) as u32;
        n - 1 < top && (bits == 1 || n > top >> 1)
    }

    #[test]
    fn none_sorts_behind_every_row_and_set() {
        let edges = (1..32).flat_map(|k| [(1u32 << k) - 1, 1 << k, (1 << k) + 1]);
        for rows in edges.chain([1, 3_000_000_000, u32::MAX - 1]) {
            let mut config = GroupConfig::new(&[rows], 1);
            config.cache_rows = rows.min(1 << 31);
            let layout = Layout::new(&config, 1 << 31).unwrap();
            assert!(right(layout.row_bits(), rows), "{rows} rows: {} bits", layout.row_bits());
            assert!(right(layout.set_bits(), layout.sets), "{} sets: {} bits", layout.sets, layout.set_bits());
        }
        assert!(!right(8, 256) && right(9, 256) && right(8, 255) && !right(9, 255), "the check can fail");
    }

    #[test]
    fn shards_cover_the_rows() {
        for (rows, bytes) in [(1, 100), (7, 100), (1000, 2000), (1 << 20, 1 << 16)] {
            let layout = Layout::new(&GroupConfig::new(&[rows], 5), bytes).unwrap();
            assert!(u64::from(layout.rows_per_shard) * layout.stride() <= bytes);
            assert_eq!((0..layout.shards).map(|shard| layout.shard_rows(shard)).sum::<u32>(), rows);
            assert!((0..layout.shards).all(|shard| layout.shard_rows(shard) > 0));
        }
    }
}
