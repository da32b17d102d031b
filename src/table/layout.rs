//! The sizes that follow from a configuration: the record of a row, the row of a slot, sets and windows of the cache, pieces of the table.

use crate::{
    config::{GroupConfig, Placement, Policy},
    error::Error,
    stripe::Stripe,
    table::{abi::Piece, hash::Spread, row::RowLayout},
};

/// The most pieces of a table. Each is a buffer of its own, and drivers hold far fewer.
const MOST_PIECES: u32 = 1 << 20;

/// The sizes that follow from a configuration: record, slot, sets, pieces.
///
/// Example: [`Calls`](crate::Calls).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The layout of each row.
    pub row: RowLayout,
    /// The rows that the group has of a whole one.
    pub(crate) stripe: Stripe,
    /// Number of sets of the cache; 0 without a cache.
    pub sets: u32,
    /// Number of ways of a set.
    pub ways: u32,
    /// Slots of a window of the cache; all slots if one binding can hold them. The last window may have fewer.
    pub window_slots: u32,
    /// Number of linear rows.
    pub total_rows: u32,
    /// Rows of a piece; the last piece may have fewer.
    pub rows_per_piece: u32,
    /// Number of pieces of the table.
    pub pieces: u32,
    /// Rows whose frequencies lie in one buffer (LFU); the last buffer may have fewer.
    pub freqs_per_piece: u32,
}

impl Layout {
    /// Checks the configuration and cuts the table into pieces, and the cache into windows, of at most `piece_bytes` bytes.
    ///
    /// # Errors
    /// [`Error::Config`] as [`GroupConfig::check`], and for a piece too small for a record or a window too small for a slot.
    pub fn new(config: &GroupConfig, piece_bytes: u64) -> Result<Self, Error> {
        config.check()?;
        let row = RowLayout::of(config.dim, config.precision, &config.optimizer, config.state);
        let total_rows = config.total_rows() as u32;
        let stride = row.stride();
        let window_bytes = config.window_bytes.unwrap_or(u64::MAX).min(piece_bytes);
        let piece_bytes = config.piece_bytes.unwrap_or(u64::MAX).min(piece_bytes);
        // A staged table is never bound, so it is one piece.
        let rows_per_piece = match config.placement {
            Placement::Staged => total_rows,
            _ => (piece_bytes / stride).min(u64::from(total_rows)) as u32,
        };
        if rows_per_piece == 0 {
            return Err(Error::Config {
                field: "piece_bytes",
                wanted: format!("at least one record of {stride} bytes"),
                found: piece_bytes.to_string(),
            });
        }
        let pieces = total_rows.div_ceil(rows_per_piece);
        if pieces > MOST_PIECES {
            return Err(Error::Config {
                field: "piece_bytes",
                wanted: format!("at most {MOST_PIECES} pieces of the table"),
                found: format!("{pieces}, of {piece_bytes} bytes"),
            });
        }
        let ways = config.ways;
        let sets = config.cache_rows.min(total_rows).div_ceil(ways);
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
            rows_per_piece,
            pieces,
            freqs_per_piece: (piece_bytes / 4).min(u64::from(total_rows)) as u32,
        })
    }

    /// The first row and the number of rows of each buffer of frequencies. LRU has no frequencies and one such piece, of all rows.
    pub(crate) fn freq_pieces(&self, policy: Policy) -> impl Iterator<Item = Piece> + use<> {
        let (rows, each) =
            (self.total_rows, if policy == Policy::Lfu { self.freqs_per_piece } else { self.total_rows });
        let pieces = rows.div_ceil(each);
        (0..pieces).map(move |index| {
            let first_row = index * each;
            Piece { first_row, rows: each.min(rows - first_row), ..Piece::default() }
        })
    }

    /// The sets of the rows.
    #[must_use]
    pub const fn spread(&self) -> Spread {
        Spread::new(self.total_rows, self.sets, self.ways)
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

    /// The uniform of piece `piece` for `phases`.
    #[must_use]
    pub fn piece(&self, piece: u32, phases: u32) -> Piece {
        self.neighbours(piece, 1, phases)
    }

    /// The uniform of `count` pieces from `first` on, for `phases`.
    #[must_use]
    pub fn neighbours(&self, first: u32, count: u32, phases: u32) -> Piece {
        let rows = (first..first + count).map(|piece| self.piece_rows(piece)).sum();
        let (first_row, rows_each) = (first * self.rows_per_piece, self.rows_per_piece);
        Piece { first_row, rows, rows_each, phases, ..Piece::default() }
    }

    /// The number of rows of piece `piece`.
    #[must_use]
    pub fn piece_rows(&self, piece: u32) -> u32 {
        let first = u64::from(piece) * u64::from(self.rows_per_piece);
        u64::from(self.rows_per_piece).min(u64::from(self.total_rows) - first) as u32
    }

    /// Number of key bits that order every linear row and put [`NONE`](crate::table::abi::NONE) behind all of them.
    #[must_use]
    pub const fn row_bits(&self) -> u32 {
        32 - self.total_rows.leading_zeros()
    }

    /// Number of key bits that order the places of a batch of `indices` indices, slots and scratch rows, and put
    /// [`NONE`](crate::table::abi::NONE) behind all of them.
    #[must_use]
    pub const fn place_bits(&self, indices: u32) -> u32 {
        u32::BITS - (self.slots() + self.most_distinct(indices)).leading_zeros()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{abi::*, params::Mode, rng::Purpose};

    /// Whether `bits` low bits order `n` keys, and NONE, cut to these bits, still sorts behind the last key.
    fn right(bits: u32, n: u32) -> bool {
        let top = ((1u64 << bits) - 1) as u32;
        n - 1 < top && (bits == 1 || n > top >> 1)
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
    fn pieces_cover_the_rows() {
        for (rows, bytes) in [(1, 100), (7, 100), (1000, 2000), (1 << 20, 1 << 16)] {
            let layout = Layout::new(&GroupConfig::new(&[rows], 5), bytes).unwrap();
            assert!(u64::from(layout.rows_per_piece) * layout.stride() <= bytes);
            assert_eq!((0..layout.pieces).map(|piece| layout.piece_rows(piece)).sum::<u32>(), rows);
            assert!((0..layout.pieces).all(|piece| layout.piece_rows(piece) > 0));
        }
    }

    /// 100 rows of 20 bytes in pieces of 40, and 3 sets of 8 ways in windows of 10 slots of 20 bytes.
    fn cut() -> (GroupConfig, Layout) {
        let mut config = GroupConfig::new(&[30, 70], 5).with_cache_rows(20).with_ways(8).with_policy(Policy::Lfu);
        config = config.with_precision(crate::config::Precision::Fp32);
        (config.piece_bytes, config.window_bytes) = (Some(819), Some(200));
        let layout = Layout::new(&config, u64::MAX).unwrap();
        (config, layout)
    }

    #[test]
    fn pieces_and_windows_are_as_large_as_allowed() {
        let (config, layout) = cut();
        assert_eq!(
            (layout.stride(), layout.table_bytes(), layout.slot_bytes(), layout.slot_words()),
            (20, 2000, 20, 5)
        );
        assert_eq!((layout.rows_per_piece, layout.pieces, layout.freqs_per_piece), (40, 3, 100));
        assert_eq!([0, 1, 2].map(|piece| layout.piece_rows(piece)), [40, 40, 20]);
        let piece = |first_row, rows| Piece { first_row, rows, rows_each: 40, phases: 3, ..Piece::default() };
        assert_eq!((layout.piece(2, 3), layout.neighbours(1, 2, 3)), (piece(80, 20), piece(40, 60)));
        assert_eq!((layout.sets, layout.slots(), layout.set_words()), (3, 24, 32));
        assert_eq!((layout.window_slots, layout.windows()), (10, 3));
        assert_eq!(layout.windows_slots().collect::<Vec<_>>(), [10, 10, 4]);
        assert_eq!(layout.windows_bytes().collect::<Vec<_>>(), [200, 200, 80]);
        // The smaller of what the device binds and what the configuration allows.
        let bound = Layout::new(&config, 120).unwrap();
        assert_eq!((bound.rows_per_piece, bound.window_slots, bound.freqs_per_piece), (6, 6, 30));
        assert_eq!((bound.windows(), bound.windows_slots().sum::<u32>()), (4, 24));
        let staged = Layout::new(&config.clone().with_placement(Placement::Staged), 120).unwrap();
        assert_eq!((staged.rows_per_piece, staged.pieces), (100, 1));
        let none = Layout::new(&config.with_cache_rows(0), 120).unwrap();
        assert_eq!((none.sets, none.windows(), none.windows_slots().collect::<Vec<_>>()), (0, 1, vec![0]));
    }

    #[test]
    fn frequencies_are_cut_for_lfu_only() {
        let (config, _) = cut();
        let layout = Layout::new(&config, 120).unwrap();
        let pieces = |policy| layout.freq_pieces(policy).map(|piece| (piece.first_row, piece.rows)).collect::<Vec<_>>();
        assert_eq!(pieces(Policy::Lfu), [(0, 30), (30, 30), (60, 30), (90, 10)]);
        assert_eq!((pieces(Policy::Lru), pieces(Policy::Static)), (vec![(0, 100)], vec![(0, 100)]));
    }

    #[test]
    fn what_is_too_small_is_named() {
        let (config, _) = cut();
        let field = |piece, window| {
            let mut config = config.clone();
            (config.piece_bytes, config.window_bytes) = (Some(piece), Some(window));
            match Layout::new(&config, u64::MAX) {
                Err(Error::Config { field, wanted, found }) => format!("{field}: {wanted}, {found}"),
                other => format!("{:?}", other.map(|layout| (layout.rows_per_piece, layout.window_slots))),
            }
        };
        assert_eq!(field(20, 20), "Ok((1, 1))");
        assert_eq!(field(19, 20), "piece_bytes: at least one record of 20 bytes, 19");
        assert_eq!(field(20, 19), "window_bytes: at least one slot of 20 bytes, 19");
        let mut without = config.with_cache_rows(0);
        without.window_bytes = Some(1);
        assert!(Layout::new(&without, u64::MAX).is_ok(), "no cache has no windows");
    }

    #[test]
    fn keys_have_as_many_bits_as_they_need() {
        let (config, layout) = cut();
        assert_eq!([0, 99, 100, 101, u32::MAX].map(|n| layout.most_distinct(n)), [0, 99, 100, 100, 100]);
        assert_eq!((layout.row_bits(), layout.spread().key_bits()), (7, 7));
        assert!((0..200).all(|indices| right(layout.place_bits(indices), 24 + indices.min(100))));
        let none = Layout::new(&config.with_cache_rows(0), u64::MAX).unwrap();
        assert_eq!((none.spread().key_bits(), none.place_bits(1)), (7, 1));
        assert_eq!((layout.width(), layout.at_once()), (1, 256 / 8));
    }

    #[test]
    fn sets_go_by_the_rows_of_the_stripe() {
        let (mut config, plain) = cut();
        config.stripe = Stripe { shift: 2, first: 3 };
        let layout = Layout::new(&config, u64::MAX).unwrap();
        let params = Params::new(&config, &layout, Mode::Train, Purpose::WriteBack);
        assert!((0..100).all(|row| params.set_of(row) == plain.spread().set_of(row)));
        assert_eq!((params.stripe(), params.ways(), Params::default().ways()), (config.stripe, 8, 0));
        // No cache is larger than its table.
        let all = Layout::new(&config.with_cache_rows(200), u64::MAX).unwrap();
        assert_eq!((all.sets, all.spread().set_of(99)), (13, 12));
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
        let feature = |table, base, rows| Feature { table, base, rows, ..Feature::default() };
        assert_eq!(features(&config), [feature(2, 100, 5), feature(0, 0, 30), feature(2, 100, 5)]);
    }
}
