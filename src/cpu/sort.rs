//! Sorts numbers by their keys: the accesses of a batch by their rows.

use std::sync::atomic::Ordering::Relaxed;

use crate::{
    cpu::share::{self, key},
    error::Error,
    host::{alloc::zeroed, trusted::shared},
    table::abi::NONE,
};

/// Most bits of a digit: the counts of 4,096 digits fit a first-level cache, and 24 bits take two passes.
const DIGIT: u32 = 12;

/// Two arrays of entries ([`share::keyed`]), which take turns as source and target, and the counts of digits.
#[derive(Debug)]
pub(crate) struct Sorter {
    arrays: [Vec<u64>; 2],
    /// For each part of the entries the number of each digit, then the place of the digit's next entry.
    digits: Vec<u32>,
    /// The array with the result, and its length.
    result: (usize, usize),
}

impl Sorter {
    pub(crate) fn new(capacity: usize) -> Result<Self, Error> {
        let digits = share::sort_parts(capacity) << DIGIT;
        let arrays = [zeroed("sorted", capacity)?, zeroed("sorted", capacity)?];
        Ok(Self { arrays, digits: zeroed("scan", digits)?, result: (0, 0) })
    }

    /// The entries to sort.
    pub(crate) fn input(&mut self, n: usize) -> &mut [u64] {
        &mut self.arrays[0][..n]
    }

    /// Sorts the first `n` entries of the input by the low `key_bits` bits of their keys, and keeps the order of equal keys. Leaves out
    /// entries with the key NONE.
    pub(crate) fn sort(&mut self, n: usize, key_bits: u32) {
        let passes = key_bits.div_ceil(DIGIT).max(1);
        let bits = key_bits.div_ceil(passes).max(1);
        let mut n = n;
        for pass in 0..passes {
            let [even, odd] = &mut self.arrays;
            let (from, to) = if pass % 2 == 0 { (even, odd) } else { (odd, even) };
            n = scatter(&from[..n], &mut to[..n], &mut self.digits, 32 + pass * bits, bits);
        }
        self.result = (passes as usize % 2, n);
    }

    /// The sorted entries, to be changed without changing their order.
    pub(crate) fn sorted_mut(&mut self) -> &mut [u64] {
        let (array, n) = self.result;
        &mut self.arrays[array][..n]
    }

    /// The sorted entries.
    pub(crate) fn sorted(&self) -> &[u64] {
        let (array, n) = self.result;
        &self.arrays[array][..n]
    }
}

/// Moves each entry to its place in the order of one digit; stable. Returns the number of entries whose key is not NONE.
fn scatter(from: &[u64], to: &mut [u64], digits: &mut [u32], shift: u32, bits: u32) -> usize {
    let (each, mask) = (1 << bits, (1u64 << bits) - 1);
    let parts = share::sort_parts(from.len()).min(digits.len() / each);
    let digits = &mut digits[..parts * each];
    let digit = |entry: u64, (shift, mask): (u32, u64)| (entry >> shift & mask) as usize;
    share::each(parts, from.len(), digits, &|counts, range| {
        let by = (shift, mask); // in registers
        counts.fill(0);
        for &entry in &from[range] {
            counts[digit(entry, by)] += u32::from(key(entry) != NONE);
        }
    });
    let mut before = 0;
    for digit in 0..each {
        for part in 0..parts {
            let count = &mut digits[part * each + digit];
            (*count, before) = (before, before + *count);
        }
    }
    let to = shared(to);
    share::each(parts, from.len(), digits, &|places, range| {
        let (to, by) = (to, (shift, mask));
        for &entry in from[range].iter().filter(|&&entry| key(entry) != NONE) {
            let place = &mut places[digit(entry, by)];
            to[*place as usize].store(entry, Relaxed);
            *place += 1;
        }
    });
    before as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::share::keyed;

    #[test]
    fn entries_are_sorted_by_their_keys_and_equal_keys_keep_their_order() {
        for (n, bits) in [(0, 5), (1, 1), (1000, 3), (20_000, 12), (20_000, 13), (20_000, 25), (20_000, 32)] {
            let mut sorter = Sorter::new(n).unwrap();
            let mask = u32::MAX >> (32 - bits);
            let keys = (0..n as u32).map(|i| if i % 11 == 3 { NONE } else { i.wrapping_mul(0x9e37_79b9) & mask & !1 });
            let entries: Vec<u64> = keys.zip(0..).map(|(key, i)| keyed(key, i)).collect();
            sorter.input(n).copy_from_slice(&entries);
            sorter.sort(n, bits);
            let mut wanted: Vec<u64> = entries.iter().copied().filter(|&entry| key(entry) != NONE).collect();
            wanted.sort_by_key(|&entry| key(entry));
            assert!(sorter.sorted() == wanted, "{n} entries of {bits} bits");
        }
    }
}
