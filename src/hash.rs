//! The hash that spreads rows over the sets of a cache (SPEC 3).

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

#[cfg(test)]
mod tests {
    use super::fmix32;

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
