//! The places of a row's chunks in the shared array (SPEC 8; ROBE, section 3; constants of the authors' code).
//!
//! Chunk j of linear row g begins at `((g R3 + j R2 + R1) mod P) mod (|M| - Z + 1)`. The modulus ends before the last Z
//! weights, so no chunk wraps. The last chunk of a row may be shorter than Z.

/// The prime P. It is below 2^31, so that two residues add up in 32 bits.
pub const PRIME: u32 = 2_038_074_743;
/// The constant term of the hash.
pub const R1: u32 = 634_329_019;
/// Factor of the chunk's number.
pub const R2: u32 = 1_825_252_241;
/// Factor of the row's number.
pub const R3: u32 = 871_205_356;

/// The part of the hash that all chunks of a row share: `(g R3 + R1) mod P`, below [`PRIME`].
///
/// Exact for every `u32`, since a product of residues is below 2^62. Shaders have no 64-bit integers and compute the
/// same from 16-bit halves (`shaders/shared/robe.wgsl`).
#[inline]
#[must_use]
pub const fn row_hash(row: u32) -> u32 {
    ((row as u64 * R3 as u64 + R1 as u64) % PRIME as u64) as u32
}

/// Where the chunks of a row are counted from: its hash or, if rows lie `stride` weights apart, the first weight of the row itself or,
/// with `rows` rows in the array, of the row that its hash chooses. Rows whose chunks are hashed have a `stride` of 0.
#[inline]
#[must_use]
pub const fn row_place(row: u32, stride: u32, rows: u32) -> u32 {
    // Such a row lies in the array, so its first weight is below 2^31.
    match (stride, rows) {
        (0, _) => row_hash(row),
        (_, 0) => row.wrapping_mul(stride),
        _ => row_hash(row) % rows * stride,
    }
}

/// The first weight of chunk `chunk` of a row, given the row's hash or the first weight of a row that lies as a whole, which is its
/// only chunk. `starts` is |M| - Z + 1, at least 1.
#[inline]
#[must_use]
pub const fn chunk_start(row_hash: u32, chunk: u32, starts: u32) -> u32 {
    ((row_hash as u64 + chunk as u64 * R2 as u64) % PRIME as u64 % starts as u64) as u32
}

/// The place of element `element` of linear row `row` in an array of `weights` weights, with chunks of `chunk`
/// elements.
///
/// ```
/// use hotrow::robe::hash::location;
/// assert_eq!(location(123_456_789, 33, 27_000_000, 32), 14_643_691);
/// ```
#[must_use]
pub const fn location(row: u32, element: u32, weights: u32, chunk: u32) -> u32 {
    chunk_start(row_hash(row), element / chunk, weights - chunk + 1) + element % chunk
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The formula, in integers that cannot overflow.
    fn defined(row: u32, element: u32, weights: u32, chunk: u32) -> u128 {
        let (row, element, weights, chunk) =
            (u128::from(row), u128::from(element), u128::from(weights), u128::from(chunk));
        let sum = row * 871_205_356 + element / chunk * 1_825_252_241 + 634_329_019;
        sum % 2_038_074_743 % (weights - chunk + 1) + element % chunk
    }

    #[test]
    fn published_vectors() {
        let known = [
            ((0, 0, 1000, 1), 19),
            ((1, 0, 1000, 1), 375),
            ((1, 1, 1000, 1), 873),
            ((5, 7, 1000, 8), 870),
            ((123_456_789, 33, 27_000_000, 32), 14_643_691),
            ((2_147_483_648, 127, 27_000_000, 32), 6_727_645),
        ];
        for ((row, element, weights, chunk), place) in known {
            assert_eq!(location(row, element, weights, chunk), place, "row {row}, element {element}");
            assert_ne!(location(row ^ 1, element, weights, chunk), place, "another row");
        }
    }

    #[test]
    fn extremes() {
        for row in [0, 1, PRIME - 1, PRIME, PRIME + 1, 2 * PRIME, u32::MAX - 1, u32::MAX] {
            for element in [0, 1, (1 << 24) - 1] {
                for (weights, chunk) in [(1, 1), (2, 1), (PRIME, 1), (PRIME, 32), (PRIME, PRIME), (40, 40), (40, 39)] {
                    let found = location(row, element, weights, chunk);
                    assert_eq!(u128::from(found), defined(row, element, weights, chunk));
                    assert!(found < weights);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn as_defined(row: u32, element in 0u32..1 << 24, chunk in 1u32..300, more in 0u32..2_000_000_000) {
            let weights = (chunk + more).min(PRIME);
            prop_assert_eq!(u128::from(location(row, element, weights, chunk)), defined(row, element, weights, chunk));
        }

        /// A chunk is contiguous and lies within the array.
        #[test]
        fn chunks_are_whole(row: u32, element in 0u32..1 << 20, chunk in 1u32..300, more in 0u32..100_000) {
            let weights = chunk + more;
            let first = element / chunk * chunk;
            let start = location(row, first, weights, chunk);
            prop_assert!(start + chunk <= weights);
            prop_assert_eq!(location(row, element, weights, chunk), start + element % chunk);
        }
    }
}
