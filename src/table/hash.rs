//! The hash that spreads rows over the sets of a cache (SPEC 3), and the key by which missing rows are sorted set by
//! set.

/// Stands for no row.
const NONE: u32 = u32::MAX;

/// Murmur3's 32-bit finaliser, a bijection on `u32`. `set(row) = fmix32(row) mod sets`.
#[must_use]
pub const fn fmix32(row: u32) -> u32 {
    let mut h = row;
    h ^= h >> 16;
    h = h.wrapping_mul(0x85eb_ca6b);
    h ^= h >> 13;
    h = h.wrapping_mul(0xc2b2_ae35);
    h ^ (h >> 16)
}

/// The sort key of a missing row: distinct for distinct rows, ascending by set, never NONE. It is the position of
/// `fmix32(row)` in the list of all 32-bit hashes ordered by (set, hash), without the hash of NONE. Without sets the
/// key is the row itself. One sort by this key brings equal rows together, and the rows of a set.
#[must_use]
pub const fn miss_key(row: u32, sets: u32) -> u32 {
    if sets == 0 {
        return row;
    }
    let key = nth_hash(fmix32(row), sets);
    key - (key > nth_hash(fmix32(NONE), sets)) as u32
}

/// Returns how many hashes come before `h` in the list of all hashes ordered by (set, hash).
const fn nth_hash(h: u32, sets: u32) -> u32 {
    let home = h % sets;
    // `2^32 = each * sets + more`. With one set `each` overflows to 0, which is harmless: it is multiplied with set 0.
    let more = (u32::MAX % sets + 1) % sets;
    let each = (u32::MAX / sets).wrapping_add((more == 0) as u32);
    let before = if home < more { home } else { more };
    home.wrapping_mul(each) + before + h / sets
}

#[cfg(test)]
mod tests {
    use crate::table::hash::{fmix32, miss_key, nth_hash as key_of_hash};

    #[test]
    fn miss_keys_are_distinct_and_never_none() {
        for sets in [1, 3, 32, 1000, 1 << 20] {
            let mut keys: Vec<(u32, u32)> =
                (0..50_000).chain(u32::MAX - 50_000..u32::MAX).map(|row| (miss_key(row, sets), row)).collect();
            keys.sort_unstable();
            assert!(keys.windows(2).all(|pair| pair[0].0 < pair[1].0), "distinct");
            let sets_of: Vec<u32> = keys.iter().map(|&(_, row)| fmix32(row) % sets).collect();
            assert!(sets_of.is_sorted(), "set by set");
            // The last hash of the list, and the row that has it.
            let h = u32::MAX - (u32::MAX - (sets - 1)) % sets;
            assert_eq!(key_of_hash(h, sets), u32::MAX);
            assert_eq!(miss_key(row_of_hash(h), sets), u32::MAX - 1);
        }
    }

    /// The inverse of fmix32.
    fn row_of_hash(h: u32) -> u32 {
        let mut x = h ^ h >> 16;
        x = x.wrapping_mul(0x7ed1_b41d);
        x ^= x >> 13 ^ x >> 26;
        x = x.wrapping_mul(0xa5cb_9243);
        x ^= x >> 16;
        assert_eq!(fmix32(x), h);
        x
    }

    #[test]
    fn miss_keys_count_the_hashes_set_by_set() {
        for sets in [1u32, 2, 3, 7, 32, 1000, 65_536, 65_537, 1 << 27, (1 << 27) - 1] {
            let last = |set: u32| set + (u32::MAX - set) / sets * sets; // the set's largest hash
            let sample: Vec<u32> = (0..sets).step_by((sets as usize / 100).max(1)).chain([sets - 1]).collect();
            assert_eq!(key_of_hash(0, sets), 0);
            for &set in &sample {
                if u64::from(set) + u64::from(sets) <= u64::from(u32::MAX) {
                    assert_eq!(key_of_hash(set + sets, sets), key_of_hash(set, sets) + 1, "within set {set} of {sets}");
                }
                let end = key_of_hash(last(set), sets);
                if set + 1 < sets {
                    assert_eq!(end + 1, key_of_hash(set + 1, sets), "from set {set} of {sets} to the next");
                } else {
                    assert_eq!(end, u32::MAX, "{sets} sets take all of 2^32");
                }
            }
        }
        assert_eq!(miss_key(17, 0), 17);
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
