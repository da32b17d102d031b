//! The sizes that follow from a configuration: the record of a row, the row of a slot, sets and windows of the cache, pieces of the table.

use std::ops::Range;

use crate::{
    config::{GroupConfig, Placement},
    error::Error,
    rules::OwnRule,
    stripe::Stripe,
    table::{
        abi::{NONE, Piece, RECENT, Share},
        hash::Spread,
        row::RowLayout,
        shares::Sets,
    },
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
    /// Which rows of a group over ranks this shard stores; all of them in any other group.
    pub(crate) stripe: Stripe,
    /// The sets of the rows, where no table has a share.
    spread: Spread,
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
    /// Bits of the counter of a row, of which a word has as many as it can hold; 0 without counters.
    pub freq_bits: u32,
    /// Rows whose counters lie in one buffer, in whole words; the last buffer may have fewer.
    pub freqs_per_piece: u32,
    /// Ways of a set that hold recent rows ([`Policy::Window`](crate::Policy::Window)); 0 where every row has a slot.
    pub window_ways: u32,
    /// The hash of an own rule's identity; 0 for a rule of the library.
    pub(crate) own_rule: u64,
    /// The share of each table; empty if all tables share all sets.
    pub(crate) shares: Vec<Share>,
}

impl Layout {
    /// Checks the configuration and cuts the table into pieces, and the cache into windows, of at most `piece_bytes` bytes.
    ///
    /// # Errors
    /// [`Error::Config`] as [`GroupConfig::check`], and for a piece too small for a record or a window too small for a slot.
    pub fn new(config: &GroupConfig, piece_bytes: u64) -> Result<Self, Error> {
        config.check()?;
        Self::unchecked(config, piece_bytes)
    }

    /// As [`new`](Self::new), of a configuration that [`GroupConfig::check`] would pass but for its ways, which may be more than a probe looks at.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn unchecked(config: &GroupConfig, piece_bytes: u64) -> Result<Self, Error> {
        let row = RowLayout::by_facts(config.dim, config.precision, &config.optimizer, &config.facts(), config.state);
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
        let shares = shares(config, config.cache_rows.min(total_rows).div_ceil(ways))?;
        let sets = match shares.last() {
            Some(last) => last.first_set + last.sets,
            None => config.cache_rows.min(total_rows).div_ceil(ways),
        };
        let slot_bytes = row.slot_bytes();
        let window_slots = (window_bytes / slot_bytes).min(u64::from(sets * ways)) as u32;
        if window_slots == 0 && sets > 0 {
            return Err(Error::Config {
                field: "window_bytes",
                wanted: format!("at least one slot of {slot_bytes} bytes"),
                found: window_bytes.to_string(),
            });
        }
        let freq_bits = config.bits_of_uses();
        let freqs_per_piece = match 32u32.checked_div(freq_bits) {
            None => total_rows,
            Some(each) => {
                (piece_bytes / 4).saturating_mul(each.into()).clamp(each.into(), total_rows.max(each).into()) as u32
            }
        };
        let spread = Spread::new(total_rows, sets, ways);
        let covers = shares.is_empty() && spread.covers();
        let windowed = sets > 0 && config.policy.facts().recent && !covers;
        Ok(Self {
            row,
            stripe: config.stripe,
            spread,
            sets,
            ways,
            window_slots,
            total_rows,
            rows_per_piece,
            pieces,
            freq_bits,
            freqs_per_piece,
            window_ways: if windowed { config.window_ways } else { 0 },
            own_rule: config.own().map_or(0, OwnRule::hash),
            shares,
        })
    }

    /// The first row and the number of rows of each buffer of counters. Without counters there is one such piece, of all rows.
    pub(crate) fn freq_pieces(&self) -> impl Iterator<Item = Piece> + use<> {
        let (rows, each) = (self.total_rows, self.freqs_per_piece);
        let pieces = rows.div_ceil(each);
        (0..pieces).map(move |index| {
            let first_row = index * each;
            Piece { first_row, rows: each.min(rows - first_row), ..Piece::default() }
        })
    }

    /// The sets of the rows.
    #[must_use]
    pub const fn spread(&self) -> Spread {
        self.spread
    }

    /// Bytes of the counters of `rows` rows.
    pub(crate) const fn freq_bytes(&self, rows: u32) -> u64 {
        (rows as u64 * self.freq_bits as u64).div_ceil(32) * 4
    }

    /// The sets of the rows, which a [`spread`](Self::spread) has without shares.
    #[must_use]
    pub fn sets_of_rows(&self) -> Sets<'_> {
        Sets { ways: self.ways, whole: self.spread(), shares: &self.shares }
    }

    /// The number of bits of the keys by which missing rows are sorted.
    pub(crate) fn key_bits(&self) -> u32 {
        match self.shares.last() {
            // The greatest key.
            Some(last) => 32 - last.first_key.wrapping_sub(1).wrapping_add(1 << (32 - last.spare)).leading_zeros(),
            None => self.spread().key_bits(),
        }
    }

    /// The number of sets of a table's rows.
    #[must_use]
    pub fn sets_of_table(&self, table: usize) -> u32 {
        self.shares.get(table).map_or(self.sets, |share| share.sets)
    }

    /// The share that has a set, if there are shares.
    fn share_of(&self, set: u32) -> Option<&Share> {
        self.shares.get(self.shares.partition_point(|share| share.first_set <= set).checked_sub(1)?)
    }

    /// Number of ways of a set that hold recent rows, if no row is pinned there.
    #[must_use]
    pub fn recent_ways(&self, set: u32) -> u32 {
        if self.share_of(set).is_some_and(Share::covers) { 0 } else { self.window_ways }
    }

    /// Of the rows that come first, as many as there are slots, the share that finds no way in its sets: those are the hottest rows where rows are
    /// numbered by how often they are used.
    pub(crate) fn without_a_way(&self) -> f64 {
        let (mut held, sets) = (vec![0_u32; self.sets as usize], self.sets_of_rows());
        let whole = 0..self.slots().min(self.total_rows);
        let shares = self.shares.iter().map(|share| share.first_row..share.first_row + share.sets * self.ways);
        let rows = if self.shares.is_empty() { vec![whole] } else { shares.collect() };
        let rows = rows.into_iter().flatten().filter(|&row| row < self.total_rows);
        let n = rows.map(|row| sets.set_of(row)).filter(|&set| set != NONE).map(|set| held[set as usize] += 1).count();
        let left: u32 = held.iter().map(|&rows| rows.saturating_sub(self.ways)).sum();
        f64::from(left) / (n as f64).max(1.0)
    }

    /// Says so, to those who listen; for caches that are quickly counted.
    pub(crate) fn log_ways(&self) {
        if self.sets > 0 && self.slots() <= 1 << 24 && log::log_enabled!(log::Level::Info) {
            let (slots, share) = (self.slots(), 100.0 * self.without_a_way());
            log::info!("a cache of {slots} rows: {share:.1} % of the first {slots} rows find no way in their sets");
        }
    }

    /// The flags of a way of a set that is empty.
    #[must_use]
    pub fn empty_flags(&self, set: u32, way: u32) -> u32 {
        if way < self.recent_ways(set) { RECENT } else { 0 }
    }

    /// Number of counts of accesses since a halving: one for each share, and 1 without shares.
    #[must_use]
    pub fn counts_since(&self) -> usize {
        self.shares.len().max(1)
    }

    /// Under [`Policy::Window`](crate::Policy::Window) the parts of the cache whose counters are halved: the table whose accesses count, if each
    /// has its own, the rows, and the sets.
    pub fn ageing(&self) -> impl Iterator<Item = (usize, Range<u32>, Range<u32>)> {
        let whole = self.shares.is_empty().then_some((0, 0..self.total_rows, 0..self.sets));
        let ends = self.shares.iter().skip(1).map(|next| next.first_row).chain([self.total_rows]);
        let parts =
            self.shares.iter().zip(ends).enumerate().filter(|(_, (share, _))| share.sets > 0 && !share.covers());
        let sets = |share: &Share| share.first_set..share.first_set + share.sets;
        whole.into_iter().chain(parts.map(move |(table, (share, end))| (table, share.first_row..end, sets(share))))
    }

    /// The table whose accesses since a halving count those to `row`, if any: the first one without shares.
    #[must_use]
    pub fn ages_with(&self, row: u32) -> Option<u32> {
        if self.shares.is_empty() {
            return Some(0);
        }
        let table = self.shares.partition_point(|share| share.first_row <= row) - 1;
        (self.shares[table].sets > 0 && !self.shares[table].covers()).then_some(table as u32)
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

    /// The words of a set in the metadata.
    pub(crate) const fn words_of_set(&self, set: u32) -> Range<usize> {
        let words = 4 * self.ways as usize;
        set as usize * words..(set as usize + 1) * words
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

/// The share of each table of `all` sets; none without shares or without a cache.
fn shares(config: &GroupConfig, all: u32) -> Result<Vec<Share>, Error> {
    if config.cache_shares.is_empty() || all == 0 {
        return Ok(Vec::new());
    }
    let keys: u64 = config.tables.iter().map(|&rows| 1 << Spread::new(rows, 0, config.ways).key_bits()).sum();
    let share = |table: usize| config.cache_shares.get(table).copied().unwrap_or_default();
    let sets = |table, rows: u32| match share(table) {
        0.0 => 0,
        share => ((share * all as f32) as u32).max(1).min(rows.div_ceil(config.ways)),
    };
    if keys > u64::from(u32::MAX) {
        let wanted = "tables of at most 2^32 - 1 rows together, each rounded up to a power of two".into();
        return Err(Error::Config { field: "cache_shares", wanted, found: format!("{keys} of them") });
    }
    let shares = Share::list(&config.tables, sets, config.ways);
    let taken: u64 = shares.iter().map(|share| u64::from(share.sets)).sum();
    if taken > u64::from(all) {
        let wanted = format!("at least {}, a set for each share", taken * u64::from(config.ways));
        return Err(Error::Config { field: "cache_rows", wanted, found: config.cache_rows.to_string() });
    }
    if taken < u64::from(all) {
        log::info!(
            "cache_shares: {} of {all} sets are in no table's share, and take no memory",
            u64::from(all) - taken
        );
    }
    Ok(shares)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Policy;
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
    fn frequencies_are_cut_for_lfu_and_window_only() {
        let (config, _) = cut();
        let pieces = |policy, bytes| {
            let layout = Layout::new(&config.clone().with_policy(policy), bytes).unwrap();
            layout.freq_pieces().map(|piece| (piece.first_row, piece.rows)).collect::<Vec<_>>()
        };
        assert_eq!(pieces(Policy::Lfu, 120), [(0, 30), (30, 30), (60, 30), (90, 10)]);
        assert_eq!((pieces(Policy::Lru, 120), pieces(Policy::Static, 120)), (vec![(0, 100)], vec![(0, 100)]));
        assert_eq!(pieces(Policy::Window, 120), [(0, 100)], "120 bytes have 240 counters of 4 bits");
        assert_eq!(pieces(Policy::Window, 20), [(0, 40), (40, 40), (80, 20)]);
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
        assert_eq!((layout.spread(), params.multiplier), (plain.spread(), plain.spread().multiplier));
        assert_eq!((params.row_shift, params.row_first), (config.stripe.shift, config.stripe.first));
        assert_eq!((params.ways(), Params::default().ways()), (8, 0));
        // No cache is larger than its table.
        let all = Layout::new(&config.with_cache_rows(200), u64::MAX).unwrap();
        assert_eq!((all.sets, all.spread().set_of(99), all.without_a_way()), (13, 12, 0.0));
        let head = GroupConfig::new(&[1_000_000], 1).with_cache_rows(50_000);
        let head = Layout::new(&head, u64::MAX).unwrap().without_a_way();
        // 333 of 50,016.
        assert!((head - 0.006658).abs() < 1e-6, "{head}");
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
