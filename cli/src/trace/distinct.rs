//! Counts distinct ids.

/// The number of distinct ids.
pub(super) fn count(ids: &[u32]) -> u32 {
    let Some(&largest) = ids.iter().max() else { return 0 };
    let words = largest as usize / 64 + 1;
    // A bit for each possible id, if that takes less memory than a copy of the ids.
    if words <= ids.len() / 2 + 1024 {
        let mut seen = vec![0_u64; words];
        for &id in ids {
            seen[id as usize / 64] |= 1 << (id % 64);
        }
        return seen.iter().map(|word| word.count_ones()).sum();
    }
    let mut sorted = ids.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    sorted.len() as u32
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn dense_and_sparse() {
        assert_eq!(count(&[]), 0);
        assert_eq!(count(&[0, 63, 64, 63]), 3);
        assert_eq!(count(&[0, u32::MAX - 2, 5, u32::MAX - 2]), 3);
    }
}
