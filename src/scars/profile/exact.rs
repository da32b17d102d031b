//! Exact counts, one for each row.

use std::collections::HashMap;

/// Tables of up to this many rows get a vector from the start: 8 MiB.
const SMALL: u64 = 1 << 20;

/// Counts by row: in a map while few rows are used, then in a vector. It takes at most about 10 bytes for each row of
/// the tables, except while it changes over and has both.
#[derive(Clone, Debug)]
pub(crate) enum Exact {
    Map { rows: u64, counts: HashMap<u32, u64> },
    Dense(Vec<u64>),
}

impl Exact {
    pub(crate) fn new(rows: u64) -> Self {
        if rows <= SMALL { Self::Dense(vec![0; rows as usize]) } else { Self::Map { rows, counts: HashMap::new() } }
    }

    #[inline]
    pub(crate) fn add(&mut self, row: u32, times: u64) {
        match self {
            Self::Dense(counts) => counts[row as usize] += times,
            Self::Map { rows, counts } => {
                *counts.entry(row).or_default() += times;
                // An entry of a map takes 17 to 39 bytes, of a vector 8.
                if counts.len() as u64 > *rows / 4 {
                    let mut dense = vec![0; *rows as usize];
                    counts.iter().for_each(|(&row, &count)| dense[row as usize] = count);
                    *self = Self::Dense(dense);
                }
            }
        }
    }

    /// The rows used at all, each with its count, in no order.
    pub(crate) fn used(&self) -> Vec<(u32, u64)> {
        match self {
            Self::Map { counts, .. } => counts.iter().map(|(&row, &count)| (row, count)).collect(),
            Self::Dense(counts) => (0..).zip(counts).filter(|&(_, &n)| n > 0).map(|(row, &n)| (row, n)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_turns_into_a_vector_and_loses_nothing() {
        let rows = 4 * SMALL;
        let mut exact = Exact::new(rows);
        let row = |i: u64| (i * 3 % rows) as u32;
        (0..SMALL).for_each(|i| exact.add(row(i), 1 + i % 5));
        assert!(matches!(exact, Exact::Map { .. }));
        exact.add(row(SMALL), 9);
        assert!(matches!(exact, Exact::Dense(_)));
        exact.add(row(7), 4);
        let mut expected: Vec<(u32, u64)> = (0..SMALL).map(|i| (row(i), 1 + i % 5)).collect();
        expected[7].1 += 4;
        expected.push((row(SMALL), 9));
        expected.sort_unstable();
        assert_eq!(exact.used(), expected);
    }
}
