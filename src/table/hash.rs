//! The sets of a cache's rows (SPEC 3), and a hash for other purposes.

/// Stands for no row.
const NONE: u32 = u32::MAX;

/// Murmur3's 32-bit finaliser, a bijection on `u32`.
#[must_use]
pub const fn fmix32(row: u32) -> u32 {
    let mut h = row;
    h ^= h >> 16;
    h = h.wrapping_mul(0x85eb_ca6b);
    h ^= h >> 13;
    h = h.wrapping_mul(0xc2b2_ae35);
    h ^ (h >> 16)
}

/// The way in which the rows of a cache are spread over its sets (SPEC 3). A row's key is distinct, never NONE, and ascends with its set: one sort
/// by keys brings equal rows together, and the rows of a set.
///
/// If the cache has a slot for every row, row r is in set `r / ways`, and r is the key. Else, of b bits, `r ^ (r >> ceil(b / 2))` times an odd
/// number near `2^b / phi` is the key h (Knuth's Fibonacci hashing), and the set is `floor(h * sets / 2^b)`.
///
/// ```
/// use hotrow::internals::hash::Spread;
///
/// let spread = Spread::new(1000, 4, 32);
/// let mut keys: Vec<(u32, u32)> = (0..1000).map(|row| (spread.key_of(row), spread.set_of(row))).collect();
/// keys.sort();
/// assert!(keys.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1));
/// assert_eq!(Spread::new(128, 4, 32).set_of(100), 3);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// Number of sets; 0 without a cache, where every row has a key and none a set.
    pub(crate) sets: u32,
    /// Number of ways of a set if there is a slot for every row, else 0.
    pub(crate) direct: u32,
    /// The part of the row that is folded onto its low bits.
    pub(crate) fold: u32,
    /// The multiplier, moved up to the highest bit, so that the product is h in the highest b bits.
    pub(crate) multiplier: u32,
    /// `32 - b`.
    pub(crate) spare: u32,
    /// Products above this have the key below: with 32 bits, the product of NONE, which is no row. Thus no key is NONE.
    pub(crate) gap: u32,
}

impl Spread {
    /// Spreads `rows` rows over `sets` sets of `ways` ways.
    #[must_use]
    pub const fn new(rows: u32, sets: u32, ways: u32) -> Self {
        let spare = if rows < 3 { u32::BITS - 1 } else { (rows - 1).leading_zeros() };
        let bits = u32::BITS - spare;
        // A cache has at most 2^31 rows.
        let direct = if rows <= 1 << 31 && sets as u64 * ways as u64 >= rows as u64 { ways } else { 0 };
        // Rows that lie one behind another, and those without sets, are not folded; of 32 bits the highest is folded onto the lowest.
        let plain = direct > 0 || sets == 0;
        let fold = if plain { u32::BITS - 1 } else { bits.div_ceil(2) };
        let odd = if bits == 22 { ODD_OF_22_BITS } else { PHI >> spare | 1 };
        let multiplier = if plain { 1 << spare } else { odd << spare };
        let spread = Self { sets, direct, fold, multiplier, spare, gap: NONE };
        if bits == u32::BITS { Self { gap: spread.product(NONE), ..spread } } else { spread }
    }

    #[inline(always)]
    const fn product(&self, row: u32) -> u32 {
        (row ^ (row >> self.fold)).wrapping_mul(self.multiplier)
    }

    /// The set of a row of a cache.
    #[inline(always)]
    #[must_use]
    pub const fn set_of(&self, row: u32) -> u32 {
        match row.checked_div(self.direct) {
            Some(set) => set,
            None => ((self.product(row) as u64 * self.sets as u64) >> u32::BITS) as u32,
        }
    }

    /// The key of a row.
    #[inline(always)]
    #[must_use]
    pub const fn key_of(&self, row: u32) -> u32 {
        let product = self.product(row);
        (product >> self.spare) - (product > self.gap) as u32
    }

    /// Whether a cache has a slot for every row.
    #[must_use]
    pub const fn covers(&self) -> bool {
        self.direct > 0
    }

    /// The number of equal parts of the keys that sets of 32 ways are: where there is a slot for every row, some parts may have no row.
    pub(crate) const fn parts(&self) -> u32 {
        match (1 << (self.key_bits() % u32::BITS)) / 32 {
            _ if !self.covers() => self.sets,
            0 => 1,
            parts => parts,
        }
    }

    /// Number of bits of a key.
    #[must_use]
    pub const fn key_bits(&self) -> u32 {
        u32::BITS - self.spare
    }
}

/// `2^32 / phi`, rounded to an odd number.
const PHI: u32 = 0x9e37_79b9;

/// Beside the number of 22 bits that is nearest to `2^22 / phi`, which is so near a simple fraction that 29 % of two million hot rows find no way.
const ODD_OF_22_BITS: u32 = 2_592_219;

#[cfg(test)]
mod tests {
    use crate::table::hash::{NONE, Spread, fmix32};

    /// The formula of SPEC 3, in wide integers.
    fn by_the_formula(rows: u32, sets: u32, ways: u32, row: u32) -> (u32, u32) {
        if rows <= 1 << 31 && u64::from(sets) * u64::from(ways) >= u64::from(rows) {
            return (row / ways, row);
        }
        let b = (1u32..).find(|&b| 1u64 << b >= u64::from(rows)).unwrap();
        let odd = if b == 22 { 2_592_219 } else { (0x9e37_79b9_u64 >> (32 - b)) | 1 };
        let h = |row: u64| (row ^ (row >> b.div_ceil(2))) * odd % (1 << b);
        let mine = h(u64::from(row));
        let key = mine - u64::from(b == 32 && mine > h(u64::from(NONE)));
        (((u128::from(mine) * u128::from(sets)) >> b) as u32, key as u32)
    }

    #[test]
    fn keys_are_distinct_never_none_and_ascend_with_the_sets() {
        let powers = (2..32).flat_map(|k| [(1u32 << k) - 1, 1 << k, (1 << k) + 1]);
        for rows in powers.chain([1, 2, 3, 33, 3_954_419_909, NONE - 1]) {
            for ways in [1, 2, 5, 32, 1024] {
                for cache in [1, rows / 20, rows / 2, rows.min(1 << 31)] {
                    let sets = cache.div_ceil(ways);
                    let spread = Spread::new(rows, sets, ways);
                    let ends = (0..rows.min(300)).chain(rows.saturating_sub(300).max(300)..rows);
                    let sample = ends.chain((rows > 3_954_419_908).then_some(3_954_419_908));
                    let mut found: Vec<_> = sample.map(|row| (spread.key_of(row), spread.set_of(row), row)).collect();
                    let what = format!("{rows} rows, {sets} sets of {ways}");
                    for &(key, set, row) in &found {
                        assert!(set < sets.max(1) && key != NONE, "{what}: row {row}");
                        assert!(u64::from(key) < 1 << spread.key_bits(), "{what}: row {row}");
                        let by_parts = (u64::from(spread.product(row)) * u64::from(spread.parts())) >> 32;
                        assert!(ways != 32 || sets == 0 || by_parts == u64::from(set), "{what}: row {row}: {by_parts}");
                        if sets > 0 {
                            assert_eq!((set, key), by_the_formula(rows, sets, ways, row), "{what}: row {row}");
                        }
                    }
                    found.sort_unstable();
                    found.dedup_by_key(|&mut (.., row)| row);
                    assert!(found.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1), "{what}");
                }
            }
        }
        let whole = Spread::new(NONE - 1, 1 << 20, 32);
        assert_eq!(
            (whole.product(3_954_419_908), whole.key_of(3_954_419_908)),
            (NONE, NONE - 1),
            "the row whose key would be NONE"
        );
        let none = Spread::new(NONE - 1, 0, 32);
        assert_eq!([0, 1, 1 << 31, NONE - 2].map(|row| none.key_of(row) == NONE), [false; 4]);
    }

    /// The share of the rows that find no way in a cache of exactly their number, of a table of `all` rows, in percent.
    fn left_out(all: u32, ways: usize, rows: impl ExactSizeIterator<Item = u32>) -> f64 {
        let (n, mut held) = (rows.len(), vec![0; rows.len().div_ceil(ways)]);
        let spread = Spread::new(all, held.len() as u32, ways as u32);
        rows.for_each(|row| held[spread.set_of(row) as usize] += 1);
        100.0 * held.iter().map(|&rows: &usize| rows.saturating_sub(ways)).sum::<usize>() as f64 / n as f64
    }

    #[test]
    fn hot_heads_and_strides_find_ways() {
        let heads = [1_000, 5_000, 50_000].map(|n| (left_out(1_000_000, 32, 0..n) * 10.0).round() / 10.0);
        assert_eq!(heads, [0.0, 0.0, 0.6]);
        for (n, mean, worst) in [(1024, 6.68, 16.9), (4096, 6.8, 14.8)] {
            let shares: Vec<f64> =
                (1..=200).map(|stride| left_out(1_000_000, 32, (0..n).map(|row| row * stride))).collect();
            let found = (shares.iter().sum::<f64>() / 200.0, shares.iter().copied().fold(0.0, f64::max));
            assert!((found.0 - mean).abs() < 0.06 && (found.1 - worst).abs() < 0.06, "{n}: {found:?}");
        }
    }

    #[test]
    fn heads_of_tables_of_every_size_find_ways() {
        // Of rows with any numbers 7, 14 and 37 % are left out. Few ways suffer more from the numbers of 11, 14 and 18 bits.
        for (ways, most) in [(32, 7.5), (8, 30.0), (1, 70.0)] {
            for all in (10..25).flat_map(|b| [(1 << b) - (1 << b) / 5, 1 << b]) {
                let of = |percent| left_out(all, ways, 0..all / 100 * percent);
                let worst = [5, 10, 20, 50, 80].map(of).into_iter().fold(0.0, f64::max);
                assert!(worst < most, "{ways} ways, {all} rows: {worst} %");
            }
        }
    }

    #[test]
    fn known_answers() {
        let known = [
            (0, 0),
            (1, 0x514e_28b7),
            (2, 0x30f4_c306),
            (3, 0x85f0_b427),
            (4, 0x249c_b285),
            (31, 0x4af6_b95b),
            (32, 0xaa4a_a778),
            (1000, 0x6669_2658),
            (65535, 0xa23b_ae67),
            (0x7fff_ffff, 0xf9cc_0ea8),
            (0xffff_ffff, 0x81f1_6f39),
        ];
        for (row, hash) in known {
            assert_eq!(fmix32(row), hash, "fmix32({row})");
        }
    }
}
