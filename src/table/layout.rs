//! The layout of a table: the record of a row, the row of a slot, the shards of a table, and the structs that host and shaders share.
//! `tests/shaders.rs` compares the structs with the WGSL ones, member by member.

use bytemuck::{Pod, Zeroable};

use crate::{
    config::{GroupConfig, Placement, Policy, Stripe},
    error::Error,
    table::{hash::fmix32, row::RowLayout},
};

/// Stands for no row, no slot and no key.
pub const NONE: u32 = u32::MAX;
/// [`Params::pooling`] for pooling none.
pub(crate) const POOL_NONE: u32 = 2;
/// Accesses of a chunk, and of a tile: `MERGE_CHUNK` in `shaders/shared/merge.wgsl`.
pub(crate) const MERGE_CHUNK: u32 = 128;
/// Words before the first table in the `tables` buffer; word 0 is the step number.
pub const CLOCK_WORDS: usize = 4;
/// Words of a table in the `tables` buffer: base, rows, then 13 counters of two words.
pub const TABLE_WORDS: usize = 28;

/// The meaning of each of [`Step::counts`].
pub mod count {
    #![allow(missing_docs, reason = "shaders/shared/common.wgsl explains the constants of these names")]
    pub const INDICES: usize = 0;
    pub const UNIQUE: usize = 1;
    pub const VALID: usize = 2;
    pub const MISSED: usize = 3;
    pub const MOVES: usize = 4;
    pub const CHUNKS: usize = 5;
}

/// Words at the head of a list of wanted rows (`shaders/shared/feedback.wgsl`).
pub mod feedback {
    #![allow(missing_docs, reason = "shaders/shared/feedback.wgsl explains the constants of these names")]
    pub const HEAD: usize = 8;
    pub const MISSING: usize = 0;
    pub const PRESENT: usize = 1;
    pub const FRAME: usize = 2;
    pub const WANTED: usize = 3;
    pub const LOST: usize = 4;
    pub const BEYOND: usize = 5;
}

/// Declares every struct that host and shaders share, with its fields. Makes the structs, and [`structs`], which `tests/shaders.rs`
/// compares with the WGSL ones.
macro_rules! host_structs {
    ($($(#[$attribute:meta])* pub struct $name:ident { $($(#[$doc:meta])* pub $field:ident: $type:ty,)+ })+) => {
        $(
            #[repr(C)]
            #[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
            #[allow(missing_docs, reason = "the WGSL struct of the same name explains the fields")]
            $(#[$attribute])*
            pub struct $name {
                $($(#[$doc])* pub $field: $type,)+
            }
        )+

        /// Every struct that the host shares with shaders.
        #[must_use]
        pub fn structs() -> Vec<HostStruct> {
            vec![$(HostStruct {
                name: stringify!($name),
                size: size_of::<$name>(),
                fields: vec![$((stringify!($field), std::mem::offset_of!($name, $field))),+],
            }),+]
        }
    };
}

/// The description of a struct by [`structs`].
#[derive(Clone, Debug)]
pub struct HostStruct {
    /// The name, here and in WGSL.
    pub name: &'static str,
    /// The size in bytes.
    pub size: usize,
    /// The fields with their offsets in bytes.
    pub fields: Vec<(&'static str, usize)>,
}

host_structs! {
    /// The uniform of a recorded call. Twin of `Params` in `shaders/shared/common.wgsl`, which explains each field.
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
        pub state_bits: u32,
        pub state_word: u32,
        pub payload_half: u32,
        pub record_words: u32,
        pub row_quads: u32,
        pub optimizer: u32,
        pub purpose: u32,
        pub total_rows: u32,
        pub eps: f32,
        pub weight_decay: f32,
        pub lanes: u32,
        pub partials: u32,
        pub window_slots: u32,
        pub half_grads: u32,
        pub random_bits: u32,
        pub freq_max: u32,
        pub zero: u32,
        pub scalars: u32,
        pub shrink: f32,
        pub beta1: f32,
        pub beta2: f32,
        pub own_count: u32,
        pub clip_value: f32,
        pub clip_norm: f32,
        pub row_shift: u32,
        pub row_first: u32,
        pub pad0: u32,
        pub pad1: u32,
    }

    /// The optimiser's rate in one step. Twin of `Rate` in `shaders/shared/rate.wgsl`.
    pub struct Rate {
        pub lr: f32,
        pub pad0: u32,
        pub pad1: u32,
        pub pad2: u32,
    }

    /// The outcome of a call, found on the device. Twin of `Step`.
    #[derive(Eq)]
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

    /// The table that a feature reads. Twin of `Feature` in `shaders/shared/feature.wgsl`.
    #[derive(Eq)]
    pub struct Feature {
        pub table: u32,
        pub base: u32,
        pub rows: u32,
        pub pad0: u32,
    }

    /// One distinct missing row of a batch. Twin of `Unique`.
    #[derive(Eq)]
    pub struct Unique {
        pub row: u32,
        pub count: u32,
        pub key: u32,
        pub slot: u32,
    }

    /// One pass of the radix sort. Twin of `Pass`.
    pub struct Pass {
        pub shift: u32,
        pub mask: u32,
        pub count: u32,
        pub capacity: u32,
        pub positions: u32,
        pub next_mask: u32,
    }

    /// A prefix sum of rows. Twin of `ScanInfo`.
    pub struct ScanInfo {
        pub count: u32,
        pub capacity: u32,
        pub per_block: u32,
        pub rows: u32,
        pub clears: u32,
    }

    /// A sort, and perhaps dedup, of few keys. Twin of `SmallInfo`.
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
    pub struct DedupInfo {
        pub capacity: u32,
        pub count: u32,
        pub segments: u32,
        pub valid: u32,
    }

    /// A change at a place, which is a slot or a row of scratch. Twin of `Move` in `shaders/shared/move.wgsl`.
    #[derive(Eq)]
    pub struct Move {
        pub place: u32,
        pub row: u32,
        pub victim: u32,
        pub flags: u32,
    }

    /// A row that a backward updates. Twin of `Target` in `shaders/shared/target.wgsl`.
    #[derive(Eq)]
    pub struct Target {
        pub row: u32,
        pub place: u32,
        pub start: u32,
        pub end: u32,
    }

    /// The points of a hash grid. Twin of `Grid` in `shaders/shared/grid.wgsl`.
    pub struct Grid {
        pub points: u32,
        pub dims: u32,
        pub levels: u32,
        pub wrap: u32,
        pub zero: u32,
        pub pad0: u32,
        pub pad1: u32,
        pub pad2: u32,
    }

    /// A level of a hash grid. Twin of `Level` in `shaders/shared/grid.wgsl`.
    pub struct Level {
        pub scale: f32,
        pub side: u32,
        pub rows: u32,
        pub hashed: u32,
    }

    /// A buffer of gradients that is inspected. Twin of `Inspected` in `shaders/scaler/inspect.wgsl`.
    pub struct Inspected {
        pub elements: u32,
        pub half: u32,
        pub pad0: u32,
        pub pad1: u32,
    }

    /// Outputs that are rounded to FP16. Twin of `Halves` in `shaders/cached/halves.wgsl`.
    pub struct Halves {
        pub elements: u32,
        pub pad0: u32,
        pub pad1: u32,
        pub pad2: u32,
    }

    /// A [`LossScale`](crate::LossScale) in numbers. Twin of `ScaleRule` in `shaders/shared/scaler.wgsl`.
    pub struct ScaleRule {
        pub kind: u32,
        pub min: f32,
        pub max: f32,
        pub grow: f32,
        pub shrink: f32,
        pub window: u32,
        pub target_log: f32,
        pub overflow_log: f32,
        pub beta: f32,
        pub beta_rest: f32,
        pub slow_beta: f32,
        pub slow_rest: f32,
        pub deviations: f32,
        pub original: u32,
        pub zero: u32,
        pub pad0: u32,
    }

    /// The state of a loss scaler between steps, 48 bytes. Twin of `ScalerState` in `shaders/shared/scaler.wgsl`.
    ///
    /// On the device it lies in [`Scaler::buffer`](crate::Scaler::buffer).
    pub struct ScalerState {
        /// The factor for the next step's loss.
        pub scale: f32,
        /// 1 over the scale of the last step that was decided.
        pub inverse: f32,
        /// 1 if the gradients of that step overflowed, so that the step updates no row; else 0.
        pub overflow: u32,
        /// Number of steps decided.
        pub iteration: u32,
        /// The last step that overflowed, counted from 1; 0 if none has.
        pub last_overflow: u32,
        /// Number of steps that overflowed.
        pub overflows: u32,
        /// The bits of the greatest magnitude among the last step's gradients, unscaled; those of infinity or NaN after an overflow.
        pub largest: u32,
        /// `LogNormal`: moving average, with `beta1`, of log2 of the greatest magnitude, corrected for its start.
        pub mean: f32,
        /// The same average with `beta2`.
        pub slow_mean: f32,
        /// The variance around `slow_mean`, with `beta2`.
        pub variance: f32,
        /// `beta1` to the power of the number of steps averaged.
        pub decay: f32,
        /// `beta2` to the power of the number of steps averaged.
        pub slow_decay: f32,
    }

    /// The rows whose records a dispatch works on. Twin of `Shard` in `shaders/shared/shard.wgsl`.
    pub struct Shard {
        pub first_row: u32,
        pub rows: u32,
        pub rows_each: u32,
        pub phases: u32,
        pub moves: u32,
        pub first_move: u32,
        pub capacity: u32,
        pub forwards: u32,
        pub kept: u32,
        pub arrivals: u32,
        pub leaving: u32,
        pub left: u32,
        pub counter: u32,
    }

    /// A parameter-shared table. Twin of `Robe` in `shaders/shared/robe.wgsl`.
    #[derive(Eq)]
    pub struct Robe {
        pub dim: u32,
        pub chunk: u32,
        pub chunks: u32,
        pub starts: u32,
        pub weights: u32,
        pub reach: u32,
        pub tail: u32,
        pub dense_from: u32,
        pub block: u32,
        pub block_words: u32,
        pub window: u32,
        pub window_words: u32,
        pub first: u32,
        pub stride: u32,
        pub state_bits: u32,
        pub state_words: u32,
        pub marks: u32,
    }
}

impl Params {
    /// Ways of a set; 0 without a cache.
    #[inline]
    #[must_use]
    pub const fn ways(&self) -> u32 {
        match self.slots.checked_div(self.sets) {
            Some(ways) => ways,
            None => 0,
        }
    }

    /// The set of a row.
    #[inline(always)]
    pub(crate) const fn set_of(&self, row: u32) -> u32 {
        fmix32(self.stripe().whole(row)) % self.sets
    }

    /// The rows that the group has of a whole one.
    #[inline(always)]
    pub(crate) const fn stripe(&self) -> Stripe {
        Stripe { shift: self.row_shift, first: self.row_first }
    }
}

impl Move {
    /// The Move that has no effect.
    pub const NOTHING: Self = Self { place: NONE, row: NONE, victim: NONE, flags: 0 };
    /// Flag: first pack the FP32 row at the place into the victim's record; a slot's row only if it is dirty, which makes it clean.
    pub const WRITE: u32 = 1;
    /// Flag: then unpack the victim's record into scratch.
    pub const KEEP: u32 = 2;
}

impl Shard {
    /// Phase: pack FP32 rows into records.
    pub const PACK: u32 = 1;
    /// Phase: unpack records into FP32 rows.
    pub const UNPACK: u32 = 2;

    /// True if `row` lies in this shard; false for [`NONE`].
    #[inline]
    #[must_use]
    pub const fn holds(&self, row: u32) -> bool {
        row.wrapping_sub(self.first_row) < self.rows
    }
}

/// The fields of the cache's metadata. A set has its ways' tags, then their stamps, freqs and flags (`shaders/shared/meta.wgsl`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Field {
    /// The linear row; [`NONE`] in an empty way.
    Tag = 0,
    /// The step that last used the row.
    Stamp = 1,
    /// Copy of the row's frequency (LFU).
    Freq = 2,
    /// [`DIRTY`], [`PINNED`] and [`COMING`]; 0 in an empty way.
    Flags = 3,
}

/// Flag of a slot: its row is newer than the record.
pub const DIRTY: u32 = 1;
/// Flag of a slot: its row is never a victim.
pub const PINNED: u32 = 2;

/// Flag of a slot: another row is admitted to it. Until exchange brings that row, it stands in place of the stamp. Only between a prefetch and
/// its forward, when no call reads the metadata.
pub const COMING: u32 = 4;

/// Word of a slot's field in the metadata of a cache of `ways` ways.
#[inline]
#[must_use]
pub const fn way_at(ways: u32, slot: u32, field: Field) -> usize {
    // The sets before this one have three words for each slot beside their tags.
    let before = slot / ways * ways;
    3 * before as usize + (field as u32 * ways) as usize + slot as usize
}

/// The sizes that follow from a configuration: record, slot, sets, shards.
///
/// Example: [`Calls`](crate::Calls).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The layout of each row.
    pub row: RowLayout,
    /// The rows that the group has of a whole one.
    pub stripe: Stripe,
    /// Number of sets of the cache; 0 without a cache.
    pub sets: u32,
    /// Number of ways of a set.
    pub ways: u32,
    /// Slots of a window of the cache; all slots if one binding can hold them. The last window may have fewer.
    pub window_slots: u32,
    /// Number of linear rows.
    pub total_rows: u32,
    /// Rows of a shard; the last shard may have fewer.
    pub rows_per_shard: u32,
    /// Number of shards of the table.
    pub shards: u32,
    /// Rows whose frequencies lie in one buffer (LFU); the last buffer may have fewer.
    pub freqs_per_shard: u32,
}

impl Layout {
    /// Checks the configuration and cuts the table into shards, and the cache into windows, of at most `shard_bytes` bytes.
    ///
    /// # Errors
    /// [`Error::Config`] as [`GroupConfig::check`], and for a shard too small for a record or a window too small for a slot.
    pub fn new(config: &GroupConfig, shard_bytes: u64) -> Result<Self, Error> {
        config.check()?;
        let row = RowLayout::of(config.dim, config.precision, &config.optimizer, config.state);
        let total_rows = config.total_rows() as u32;
        let stride = row.stride();
        let window_bytes = config.window_bytes.unwrap_or(u64::MAX).min(shard_bytes);
        let shard_bytes = config.shard_bytes.unwrap_or(u64::MAX).min(shard_bytes);
        // A staged table is never bound, so it is one shard.
        let rows_per_shard = match config.placement {
            Placement::Staged => total_rows,
            _ => (shard_bytes / stride).min(u64::from(total_rows)) as u32,
        };
        if rows_per_shard == 0 {
            return Err(Error::Config {
                field: "shard_bytes",
                wanted: format!("at least one record of {stride} bytes"),
                found: shard_bytes.to_string(),
            });
        }
        let ways = config.ways;
        let sets = config.cache_rows.div_ceil(ways);
        let slot_bytes = row.slot_bytes();
        let window_slots = (window_bytes / slot_bytes).min(u64::from(sets * ways)) as u32;
        if window_slots == 0 && sets > 0 {
            return Err(Error::Config {
                field: "window_bytes",
                wanted: format!("at least one slot of {slot_bytes} bytes"),
                found: window_bytes.to_string(),
            });
        }
        Ok(Self {
            row,
            stripe: config.stripe,
            sets,
            ways,
            window_slots,
            total_rows,
            rows_per_shard,
            shards: total_rows.div_ceil(rows_per_shard),
            freqs_per_shard: (shard_bytes / 4).min(u64::from(total_rows)) as u32,
        })
    }

    /// The first row and the number of rows of each buffer of frequencies. LRU has no frequencies and one such piece, of all rows.
    pub(crate) fn freq_shards(&self, policy: Policy) -> impl Iterator<Item = Shard> + use<> {
        let (rows, each) =
            (self.total_rows, if policy == Policy::Lfu { self.freqs_per_shard } else { self.total_rows });
        let shards = rows.div_ceil(each);
        (0..shards).map(move |index| {
            let first_row = index * each;
            Shard { first_row, rows: each.min(rows - first_row), ..Shard::default() }
        })
    }

    /// The set of a row.
    pub(crate) const fn set_of(&self, row: u32) -> u32 {
        fmix32(self.stripe.whole(row)) % self.sets
    }

    /// Floats of a Quad.
    #[must_use]
    pub const fn width(&self) -> u32 {
        self.row.width()
    }

    /// Number of rows that a workgroup moves at once.
    #[must_use]
    pub const fn at_once(&self) -> u32 {
        self.row.at_once()
    }

    /// Stride of a slot in floats, its padding included.
    #[must_use]
    pub const fn slot_words(&self) -> u32 {
        self.row.slot_words()
    }

    /// Number of slots of the cache: sets x ways.
    #[must_use]
    pub const fn slots(&self) -> u32 {
        self.sets * self.ways
    }

    /// Words of a set in the metadata.
    #[must_use]
    pub const fn set_words(&self) -> u64 {
        4 * self.ways as u64
    }

    /// Bytes of a slot, its padding included.
    #[must_use]
    pub const fn slot_bytes(&self) -> u64 {
        self.row.slot_bytes()
    }

    /// Number of windows of the cache, each a binding of its own. Without a cache there is one empty window.
    #[must_use]
    pub const fn windows(&self) -> u32 {
        if self.sets == 0 { 1 } else { self.slots().div_ceil(self.window_slots) }
    }

    /// The number of slots of each window.
    pub(crate) fn windows_slots(&self) -> impl Iterator<Item = u32> + use<> {
        let (slots, each) = (self.slots(), self.window_slots);
        (0..self.windows()).map(move |window| each.min(slots - window * each))
    }

    /// The number of bytes of each window.
    pub(crate) fn windows_bytes(&self) -> impl Iterator<Item = u64> + use<> {
        let bytes = self.slot_bytes();
        self.windows_slots().map(move |slots| bytes * u64::from(slots))
    }

    /// Bytes of a record, optimiser state included.
    #[must_use]
    pub const fn stride(&self) -> u64 {
        self.row.stride()
    }

    /// Bytes of all records.
    #[must_use]
    pub const fn table_bytes(&self) -> u64 {
        self.stride() * self.total_rows as u64
    }

    /// Most distinct rows that a batch of `indices` indices can have.
    #[must_use]
    pub const fn most_distinct(&self, indices: u32) -> u32 {
        if indices < self.total_rows { indices } else { self.total_rows }
    }

    /// The uniform of shard `shard` for `phases`.
    #[must_use]
    pub fn shard(&self, shard: u32, phases: u32) -> Shard {
        self.neighbours(shard, 1, phases)
    }

    /// The uniform of `count` shards from `first` on, for `phases`.
    #[must_use]
    pub fn neighbours(&self, first: u32, count: u32, phases: u32) -> Shard {
        let rows = (first..first + count).map(|shard| self.shard_rows(shard)).sum();
        let (first_row, rows_each) = (first * self.rows_per_shard, self.rows_per_shard);
        Shard { first_row, rows, rows_each, phases, ..Shard::default() }
    }

    /// The number of rows of shard `shard`.
    #[must_use]
    pub fn shard_rows(&self, shard: u32) -> u32 {
        let first = u64::from(shard) * u64::from(self.rows_per_shard);
        u64::from(self.rows_per_shard).min(u64::from(self.total_rows) - first) as u32
    }

    /// Number of key bits that order every linear row and put [`NONE`] behind all of them.
    #[must_use]
    pub const fn row_bits(&self) -> u32 {
        32 - self.total_rows.leading_zeros()
    }

    /// Number of key bits that order the places of a batch of `indices` indices, slots and scratch rows, and put [`NONE`] behind all of
    /// them.
    #[must_use]
    pub const fn place_bits(&self, indices: u32) -> u32 {
        u32::BITS - (self.slots() + self.most_distinct(indices)).leading_zeros()
    }

    /// Number of bits of a [`miss_key`](crate::table::hash::miss_key).
    #[must_use]
    pub const fn miss_key_bits(&self) -> u32 {
        if self.sets == 0 { self.row_bits() } else { 32 }
    }
}

/// The `tables` buffer of a new group: t = 0, bases and rows, counters at zero.
pub(crate) fn table_words(config: &GroupConfig) -> Vec<u32> {
    let mut words = vec![0; CLOCK_WORDS + config.tables.len() * TABLE_WORDS];
    let mut base = 0;
    for (table, &rows) in config.tables.iter().enumerate() {
        words[CLOCK_WORDS + table * TABLE_WORDS] = base;
        words[CLOCK_WORDS + table * TABLE_WORDS + 1] = rows;
        // The sum fits, as `GroupConfig::check` has checked.
        base = base.wrapping_add(rows);
    }
    words
}

/// The `features` buffer of a group.
pub(crate) fn features(config: &GroupConfig) -> Vec<Feature> {
    let words = table_words(config);
    let of = |table: u32| {
        let at = CLOCK_WORDS + table as usize * TABLE_WORDS;
        Feature { table, base: words[at], rows: words[at + 1], pad0: 0 }
    };
    config.feature_tables().into_iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether `bits` low bits order `n` keys, and NONE, cut to these bits, still sorts behind the last key.
    fn right(bits: u32, n: u32) -> bool {
        let top = ((1u64 << bits) - 1) as u32;
        n - 1 < top && (bits == 1 || n > top >> 1)
    }

    /// Numbers that host and shaders share outside of structs.
    #[test]
    fn constants_are_the_shaders() {
        let common = include_str!("../../shaders/shared/common.wgsl");
        let merge = include_str!("../../shaders/shared/merge.wgsl");
        let constant = |text: &str, name: &str| {
            let declared = format!("const {name}: u32 = ");
            let at = text.find(&declared).unwrap_or_else(|| panic!("no {name}")) + declared.len();
            let value = text[at..].split('u').next().unwrap();
            match value.strip_prefix("0x") {
                Some(hex) => usize::from_str_radix(hex, 16).unwrap(),
                None => value.parse().unwrap(),
            }
        };
        let wanted = [
            ("STEP_COUNTS", std::mem::offset_of!(Step, counts) / 4),
            ("COUNT_INDICES", count::INDICES),
            ("COUNT_UNIQUE", count::UNIQUE),
            ("COUNT_VALID", count::VALID),
            ("COUNT_MISSED", count::MISSED),
            ("COUNT_MOVES", count::MOVES),
            ("NONE", NONE as usize),
            ("TABLE_WORDS", TABLE_WORDS),
            ("CLOCK_WORDS", CLOCK_WORDS),
        ];
        for (name, value) in wanted {
            assert_eq!(constant(common, name), value, "{name}");
        }
        assert_eq!(constant(merge, "MERGE_CHUNK"), MERGE_CHUNK as usize);
        assert_ne!(constant(common, "STEP_COUNTS"), constant(common, "COUNT_MOVES"), "the comparison can fail");
    }

    #[test]
    fn none_sorts_behind_every_row() {
        let edges = (1..32).flat_map(|k| [(1u32 << k) - 1, 1 << k, (1 << k) + 1]);
        for rows in edges.chain([1, 3_000_000_000, u32::MAX - 1]) {
            let mut config = GroupConfig::new(&[rows], 1);
            config.cache_rows = rows.min(1 << 31);
            let layout = Layout::new(&config, 1 << 31).unwrap();
            assert!(right(layout.row_bits(), rows), "{rows} rows: {} bits", layout.row_bits());
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

    /// 100 rows of 20 bytes in shards of 40, and 3 sets of 8 ways in windows of 10 slots of 20 bytes.
    fn cut() -> (GroupConfig, Layout) {
        let mut config = GroupConfig::new(&[30, 70], 5).with_cache_rows(20).with_ways(8).with_policy(Policy::Lfu);
        config = config.with_precision(crate::config::Precision::Fp32);
        (config.shard_bytes, config.window_bytes) = (Some(819), Some(200));
        let layout = Layout::new(&config, u64::MAX).unwrap();
        (config, layout)
    }

    #[test]
    fn shards_and_windows_are_as_large_as_allowed() {
        let (config, layout) = cut();
        assert_eq!(
            (layout.stride(), layout.table_bytes(), layout.slot_bytes(), layout.slot_words()),
            (20, 2000, 20, 5)
        );
        assert_eq!((layout.rows_per_shard, layout.shards, layout.freqs_per_shard), (40, 3, 100));
        assert_eq!([0, 1, 2].map(|shard| layout.shard_rows(shard)), [40, 40, 20]);
        let shard = |first_row, rows| Shard { first_row, rows, rows_each: 40, phases: 3, ..Shard::default() };
        assert_eq!((layout.shard(2, 3), layout.neighbours(1, 2, 3)), (shard(80, 20), shard(40, 60)));
        assert_eq!((layout.sets, layout.slots(), layout.set_words()), (3, 24, 32));
        assert_eq!((layout.window_slots, layout.windows()), (10, 3));
        assert_eq!(layout.windows_slots().collect::<Vec<_>>(), [10, 10, 4]);
        assert_eq!(layout.windows_bytes().collect::<Vec<_>>(), [200, 200, 80]);
        // The smaller of what the device binds and what the configuration allows.
        let bound = Layout::new(&config, 120).unwrap();
        assert_eq!((bound.rows_per_shard, bound.window_slots, bound.freqs_per_shard), (6, 6, 30));
        assert_eq!((bound.windows(), bound.windows_slots().sum::<u32>()), (4, 24));
        let staged = Layout::new(&config.clone().with_placement(Placement::Staged), 120).unwrap();
        assert_eq!((staged.rows_per_shard, staged.shards), (100, 1));
        let none = Layout::new(&config.with_cache_rows(0), 120).unwrap();
        assert_eq!((none.sets, none.windows(), none.windows_slots().collect::<Vec<_>>()), (0, 1, vec![0]));
    }

    #[test]
    fn frequencies_are_cut_for_lfu_only() {
        let (config, _) = cut();
        let layout = Layout::new(&config, 120).unwrap();
        let pieces = |policy| layout.freq_shards(policy).map(|piece| (piece.first_row, piece.rows)).collect::<Vec<_>>();
        assert_eq!(pieces(Policy::Lfu), [(0, 30), (30, 30), (60, 30), (90, 10)]);
        assert_eq!((pieces(Policy::Lru), pieces(Policy::Static)), (vec![(0, 100)], vec![(0, 100)]));
    }

    #[test]
    fn what_is_too_small_is_named() {
        let (config, _) = cut();
        let field = |shard, window| {
            let mut config = config.clone();
            (config.shard_bytes, config.window_bytes) = (Some(shard), Some(window));
            match Layout::new(&config, u64::MAX) {
                Err(Error::Config { field, wanted, found }) => format!("{field}: {wanted}, {found}"),
                other => format!("{:?}", other.map(|layout| (layout.rows_per_shard, layout.window_slots))),
            }
        };
        assert_eq!(field(20, 20), "Ok((1, 1))");
        assert_eq!(field(19, 20), "shard_bytes: at least one record of 20 bytes, 19");
        assert_eq!(field(20, 19), "window_bytes: at least one slot of 20 bytes, 19");
        let mut without = config.with_cache_rows(0);
        without.window_bytes = Some(1);
        assert!(Layout::new(&without, u64::MAX).is_ok(), "no cache has no windows");
    }

    #[test]
    fn keys_have_as_many_bits_as_they_need() {
        let (config, layout) = cut();
        assert_eq!([0, 99, 100, 101, u32::MAX].map(|n| layout.most_distinct(n)), [0, 99, 100, 100, 100]);
        assert_eq!((layout.row_bits(), layout.miss_key_bits()), (7, 32));
        assert!((0..200).all(|indices| right(layout.place_bits(indices), 24 + indices.min(100))));
        let none = Layout::new(&config.with_cache_rows(0), u64::MAX).unwrap();
        assert_eq!((none.miss_key_bits(), none.place_bits(1)), (7, 1));
        assert_eq!((layout.width(), layout.at_once()), (1, 256 / 8));
    }

    #[test]
    fn a_row_has_the_set_of_its_whole_group() {
        let (mut config, layout) = cut();
        config.stripe = Stripe { shift: 2, first: 3 };
        let striped = Layout::new(&config, u64::MAX).unwrap();
        let params = |row_shift, row_first, sets| Params { row_shift, row_first, sets, slots: 24, ..Params::default() };
        let (plain, part, none) = (params(0, 0, 3), params(2, 3, 3), params(2, 3, 0));
        for row in 0..25 {
            assert_eq!((layout.set_of(row), plain.set_of(row)), (fmix32(row) % 3, fmix32(row) % 3));
            assert_eq!(
                (striped.set_of(row), part.set_of(row)),
                (layout.set_of(4 * row + 3), layout.set_of(4 * row + 3))
            );
        }
        assert_eq!((part.stripe(), plain.ways(), none.ways()), (config.stripe, 8, 0));
    }

    #[test]
    fn fields_of_a_set_lie_one_behind_another() {
        let mut words = vec![0; 2 * 4 * 3];
        for slot in 0..6 {
            for field in [Field::Tag, Field::Stamp, Field::Freq, Field::Flags] {
                words[way_at(3, slot, field)] = 10 * slot + field as u32;
            }
        }
        let set = |first: u32| (0..4).flat_map(move |field| (first..first + 3).map(move |slot| 10 * slot + field));
        assert_eq!(words, set(0).chain(set(3)).collect::<Vec<_>>());
    }

    #[test]
    fn a_shard_holds_its_own_rows() {
        let shard = Shard { first_row: 40, rows: 20, ..Shard::default() };
        assert_eq!([39, 40, 59, 60, NONE].map(|row| shard.holds(row)), [false, true, true, false, false]);
    }

    #[test]
    fn tables_and_features_begin_where_those_before_end() {
        let (config, _) = cut();
        let config = config.with_tables(vec![30, 70, 5]).with_features(vec![2, 0, 2]);
        let words = table_words(&config);
        assert_eq!(words.len(), CLOCK_WORDS + 3 * TABLE_WORDS);
        let set: Vec<_> =
            words.iter().enumerate().filter(|(_, word)| **word != 0).map(|(at, word)| (at, *word)).collect();
        let at = |table, k| CLOCK_WORDS + table * TABLE_WORDS + k;
        assert_eq!(set, [(at(0, 1), 30), (at(1, 0), 30), (at(1, 1), 70), (at(2, 0), 100), (at(2, 1), 5)]);
        let feature = |table, base, rows| Feature { table, base, rows, pad0: 0 };
        assert_eq!(features(&config), [feature(2, 100, 5), feature(0, 0, 30), feature(2, 100, 5)]);
    }

    #[test]
    fn a_declared_struct_is_described() {
        let found = structs();
        let of = |name: &str| found.iter().find(|of| of.name == name).unwrap();
        assert_eq!(
            (of("Move").size, of("Move").fields.clone()),
            (16, vec![("place", 0), ("row", 4), ("victim", 8), ("flags", 12)])
        );
        assert_eq!(of("Step").fields.last(), Some(&("counts", 32)));
    }
}
