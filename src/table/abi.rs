//! What host and shaders share: structs, constants, and where the words of a cache's metadata and of the counters lie. `tests/shaders.rs` compares
//! the structs with the WGSL ones, member by member.

use bytemuck::{Pod, Zeroable};

use crate::config::GroupConfig;

/// Stands for no row, no slot and no key.
pub const NONE: u32 = u32::MAX;
/// [`Params::pooling`] for pooling none.
pub(crate) const POOL_NONE: u32 = 2;
/// Accesses of a chunk, and of a tile: `MERGE_CHUNK` in `shaders/shared/merge.wgsl`.
pub const MERGE_CHUNK: u32 = 32;
/// A workgroup of scan takes eight rows at once if they have at most so many blocks: `SCAN_SHORT` in `shaders/shared/scan.wgsl`.
pub(crate) const SCAN_SHORT: u32 = 256;
/// Tiles that a workgroup of combine looks at, at once: `TILES` in `shaders/cached/combine.wgsl`.
pub(crate) const COMBINE_TILES: u32 = 8;
/// Words before the first table in the `tables` buffer; word 0 is the step number.
pub const CLOCK_WORDS: usize = 4;
/// The first of two words of a table, low word first, behind its counters: the accesses since the counters of rows were halved
/// ([`Policy::Window`](crate::Policy::Window)). Those of the first table are the group's.
pub const SINCE: usize = 26;
/// Words of a table in the `tables` buffer: base, rows, then 12 counters of two words, and [`SINCE`].
pub const TABLE_WORDS: usize = 28;

/// The meaning of each of [`Step::counts`].
pub mod count {
    #![allow(missing_docs, reason = "shaders/shared/common.wgsl explains the constants of these names")]
    pub const INDICES: usize = 0;
    pub const UNIQUE: usize = 1;
    pub const VALID: usize = 2;
    pub const MISSED: usize = 3;
    pub const SWAPS: usize = 4;
    pub const CHUNKS: usize = 5;
    pub const HALVINGS: usize = 6;
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
        pub format: u32,
        pub stochastic: u32,
        pub state: u32,
        pub state_bits: u32,
        pub facts: u32,
        pub state_word: u32,
        pub payload_half: u32,
        pub record_words: u32,
        pub row_quads: u32,
        pub optimizer: u32,
        pub each: u32,
        pub corrects: u32,
        pub begins: u32,
        pub purpose: u32,
        pub total_rows: u32,
        pub hyper0: f32,
        pub hyper1: f32,
        pub hyper2: f32,
        pub hyper3: f32,
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
        pub own_count: u32,
        pub clip_value: f32,
        pub clip_norm: f32,
        pub row_shift: u32,
        pub row_first: u32,
        pub padded: u32,
        pub parts: u32,
        pub fold: u32,
        pub multiplier: u32,
        pub spare: u32,
        pub gap: u32,
        pub freq_bits: u32,
        pub window_ways: u32,
        pub shares: u32,
        pub row_mask: u32,
        pub miss_mask: u32,
        pub miss_values: u32,
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
        pub counts: [u32; 7],
        pub done: u32,
        pub number: u32,
        pub wanted: u32,
        pub carried: u32,
        pub continued: u32,
    }

    /// The table that a feature reads. Twin of `Feature` in `shaders/shared/feature.wgsl`.
    #[derive(Eq)]
    pub struct Feature {
        pub table: u32,
        pub base: u32,
        pub rows: u32,
        pub padding: u32,
        pub padded: u32,
    }

    /// The share of the cache that a table has. Twin of `Share` in `shaders/shared/sets.wgsl`, which explains each field.
    #[derive(Eq)]
    pub struct Share {
        pub first_row: u32,
        pub first_set: u32,
        pub sets: u32,
        pub fold: u32,
        pub multiplier: u32,
        pub spare: u32,
        pub first_key: u32,
        pub halvings: u32,
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
        pub by_value: u32,
        pub base: u32,
    }

    /// One dedup. Twin of `DedupInfo`.
    pub struct DedupInfo {
        pub capacity: u32,
        pub count: u32,
        pub segments: u32,
        pub valid: u32,
        pub by_value: u32,
        pub base: u32,
    }

    /// A change at a place, which is a slot or a row of scratch. Twin of `Swap` in `shaders/shared/swap.wgsl`.
    #[derive(Eq)]
    pub struct Swap {
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
        pub log_max: f32,
        pub beta: f32,
        pub beta_rest: f32,
        pub slow_beta: f32,
        pub slow_rest: f32,
        pub deviations: f32,
        pub zero: u32,
        pub pad0: u32,
        pub pad1: u32,
        pub pad2: u32,
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
        /// The bits of the greatest magnitude among the last step's gradients, unscaled; the bits of infinity or NaN after an overflow.
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

    /// The rows whose records a dispatch works on. Twin of `Piece` in `shaders/shared/piece.wgsl`.
    pub struct Piece {
        pub first_row: u32,
        pub rows: u32,
        pub rows_each: u32,
        pub phases: u32,
        pub swaps: u32,
        pub first_swap: u32,
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
        pub rows: u32,
        pub given: u32,
    }
}

impl Robe {
    /// A batch of one chunk over the whole array, whose gradients are those that the caller gives for the weights.
    pub(crate) const fn given(self) -> Self {
        Self { starts: 1, reach: self.weights, tail: self.weights, dense_from: 0, given: 1, ..self }
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
}

impl Swap {
    /// The swap that has no effect.
    pub const NOTHING: Self = Self { place: NONE, row: NONE, victim: NONE, flags: 0 };
    /// Flag: first pack the FP32 row at the place into the victim's record; a slot's row only if it is dirty, which makes it clean.
    pub const WRITE: u32 = 1;
    /// Flag: then unpack the victim's record into scratch.
    pub const KEEP: u32 = 2;
}

impl Piece {
    /// Phase: pack FP32 rows into records.
    pub const PACK: u32 = 1;
    /// Phase: unpack records into FP32 rows.
    pub const UNPACK: u32 = 2;

    /// True if `row` lies in this piece; false for [`NONE`].
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
    /// Copy of the row's counter (LFU, Window).
    Freq = 2,
    /// [`DIRTY`], [`PINNED`], [`COMING`] and [`RECENT`]; 0 or [`RECENT`] in an empty way.
    Flags = 3,
}

/// Flag of a slot: its row is newer than the record.
pub const DIRTY: u32 = 1;
/// Flag of a slot: its row is never a victim.
pub const PINNED: u32 = 2;

/// Flag of a slot: another row is admitted to it. Until exchange brings that row, it stands in place of the stamp. Only between a prefetch and
/// its forward, when no call reads the metadata.
pub const COMING: u32 = 4;

/// Flag of a slot: under [`Policy::Window`](crate::Policy::Window) it holds recent rows. An empty way may have it.
pub const RECENT: u32 = 8;

/// Word of a slot's field in the metadata of a cache of `ways` ways.
#[inline]
#[must_use]
pub const fn way_at(ways: u32, slot: u32, field: Field) -> usize {
    // The sets before this one have three words for each slot beside their tags.
    // Nearly every cache has 32 ways, for which the processor need not divide.
    let before = if ways == 32 { slot / 32 * 32 } else { slot / ways * ways };
    3 * before as usize + (field as u32 * ways) as usize + slot as usize
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
pub fn features(config: &GroupConfig) -> Vec<Feature> {
    let words = table_words(config);
    let of = |table: u32| {
        let at = CLOCK_WORDS + table as usize * TABLE_WORDS;
        let padding = config.padding_of(table);
        let padded = u32::from(padding.is_some());
        Feature { table, base: words[at], rows: words[at + 1], padding: padding.unwrap_or_default(), padded }
    };
    config.feature_tables().into_iter().map(of).collect()
}

impl Feature {
    /// Whether `index` is the padding id of the table.
    #[must_use]
    pub const fn pads(&self, index: u32) -> bool {
        self.padded == 1 && index == self.padding
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that host and shaders share outside of structs.
    #[test]
    fn constants_are_the_shaders() {
        let common = include_str!("../../shaders/shared/common.wgsl");
        let merge = include_str!("../../shaders/shared/merge.wgsl");
        let combine = include_str!("../../shaders/cached/combine.wgsl");
        let scan = include_str!("../../shaders/shared/scan.wgsl");
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
            ("COUNT_SWAPS", count::SWAPS),
            ("NONE", NONE as usize),
            ("TABLE_WORDS", TABLE_WORDS),
            ("CLOCK_WORDS", CLOCK_WORDS),
            ("SINCE", SINCE),
        ];
        for (name, value) in wanted {
            assert_eq!(constant(common, name), value, "{name}");
        }
        assert_eq!(constant(merge, "MERGE_CHUNK"), MERGE_CHUNK as usize);
        assert_eq!(constant(combine, "TILES"), COMBINE_TILES as usize);
        assert_eq!(constant(scan, "SCAN_SHORT"), SCAN_SHORT as usize);
        assert_ne!(constant(common, "STEP_COUNTS"), constant(common, "COUNT_SWAPS"), "the comparison can fail");
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
    fn a_piece_holds_its_own_rows() {
        let piece = Piece { first_row: 40, rows: 20, ..Piece::default() };
        assert_eq!([39, 40, 59, 60, NONE].map(|row| piece.holds(row)), [false, true, true, false, false]);
    }

    #[test]
    fn a_declared_struct_is_described() {
        let found = structs();
        let of = |name: &str| found.iter().find(|of| of.name == name).unwrap();
        assert_eq!(
            (of("Swap").size, of("Swap").fields.clone()),
            (16, vec![("place", 0), ("row", 4), ("victim", 8), ("flags", 12)])
        );
        assert_eq!(of("Step").fields.last(), Some(&("continued", 76)));
    }
}
