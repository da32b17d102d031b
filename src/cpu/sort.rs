//! The stable radix sort of `gpu/sort.rs`: histogram, scan, scatter, 8 bits a pass.

use super::{
    histogram::{BLOCK, histogram},
    memory::zeroed,
    scan,
    scatter::scatter,
};
use crate::{
    Error,
    layout::{Pass, Step},
};

/// Keys and values that belong together.
pub(super) type Sorted<'a> = (&'a [u32], &'a [u32]);

/// Two sets of arrays, used in turn.
#[derive(Debug)]
pub(super) struct SortSpace {
    arrays: [[Vec<u32>; 2]; 2],
}

/// What several sorts and scans share.
#[derive(Debug)]
pub(super) struct SortScratch {
    digits: Vec<u32>,
    pub(super) sums: Vec<Vec<u32>>,
}

/// What is sorted, and how.
pub(super) struct SortJob<'a> {
    pub(super) keys: &'a [u32],
    /// `None` for the keys' positions.
    pub(super) values: Option<&'a [u32]>,
    /// Which of the step's counts tells how many keys there are.
    pub(super) count: usize,
    /// How many low bits of a key order it.
    pub(super) key_bits: u32,
}

impl SortSpace {
    pub(super) fn new(capacity: usize) -> Result<Self, Error> {
        let pair = || Ok([zeroed("sorted", capacity)?, zeroed("sorted", capacity)?]);
        Ok(Self { arrays: [pair()?, pair()?] })
    }

    pub(super) fn sort(&mut self, step: &Step, job: &SortJob<'_>, scratch: &mut SortScratch) -> Sorted<'_> {
        let blocks = (step.counts[job.count] as usize).div_ceil(BLOCK).max(1);
        let digits = &mut scratch.digits[..256 * blocks];
        for pass in 0..passes(job.key_bits) {
            let first = u32::from(pass == 0 && job.values.is_none());
            let info = Pass { shift: 8 * pass, count: job.count as u32, blocks: blocks as u32, first };
            let [even, odd] = &mut self.arrays;
            let (to, from) = if pass & 1 == 0 { (even, odd) } else { (odd, even) };
            let (keys, values) =
                if pass == 0 { (job.keys, job.values.unwrap_or(job.keys)) } else { (&from[0][..], &from[1][..]) };
            let [keys_out, values_out] = to;
            histogram(&info, step, keys, digits);
            scan::scan_all(digits, &mut scratch.sums);
            scatter(&info, step, keys, values, digits, keys_out, values_out);
        }
        self.sorted(job.key_bits)
    }

    /// Where a sort by `key_bits` has left its result.
    pub(super) fn sorted(&self, key_bits: u32) -> Sorted<'_> {
        let [keys, values] = &self.arrays[(passes(key_bits) as usize - 1) & 1];
        (keys, values)
    }
}

fn passes(key_bits: u32) -> u32 {
    key_bits.div_ceil(8).max(1)
}

impl SortScratch {
    pub(super) fn new(capacity: usize) -> Result<Self, Error> {
        let digits = 256 * capacity.div_ceil(BLOCK).max(1);
        let sums =
            scan::levels(digits.max(capacity)).into_iter().map(|n| zeroed("scan", n)).collect::<Result<_, _>>()?;
        Ok(Self { digits: zeroed("scan", digits)?, sums })
    }
}
