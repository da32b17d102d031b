//! The hash that chooses a row's set: murmur3's 32-bit finaliser.

/// murmur3's 32-bit finaliser: a bijection of `u32`.
#[inline]
#[must_use]
pub const fn fmix32(x: u32) -> u32 {
    let mut h = x;
    h ^= h >> 16;
    h = h.wrapping_mul(0x85eb_ca6b);
    h ^= h >> 13;
    h = h.wrapping_mul(0xc2b2_ae35);
    h ^= h >> 16;
    h
}
