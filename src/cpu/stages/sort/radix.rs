//! The stable radix sort of `gpu/stages/sort/radix.rs`: histogram, scan and scatter for each pass of 8 bits.

use crate::{
    cpu::stages::sort::{
        histogram::{BLOCK, histogram},
        scan::scan,
        scatter::scatter,
    },
    error::Error,
    host::alloc::zeroed,
    table::layout::{Pass, ScanInfo, Step},
};

/// Keys, and the values that belong to them.
pub(crate) type Sorted<'a> = (&'a [u32], &'a [u32]);

/// Two sets of arrays, which take turns as source and target.
#[derive(Debug)]
pub(crate) struct SortSpace {
    arrays: [[Vec<u32>; 2]; 2],
}

/// Buffers that several sorts share.
#[derive(Debug)]
pub(crate) struct SortScratch {
    pub(crate) digits: Vec<u32>,
    pub(crate) totals: Vec<u32>,
}

/// The input of a sort.
pub(crate) struct SortJob<'a> {
    pub(crate) keys: &'a [u32],
    /// The values; `None` stands for the keys' positions.
    pub(crate) values: Option<&'a [u32]>,
    /// The step's count that holds the number of keys.
    pub(crate) count: usize,
    /// Number of low bits of a key that order it.
    pub(crate) key_bits: u32,
}

impl SortSpace {
    pub(crate) fn new(capacity: usize) -> Result<Self, Error> {
        let pair = || Ok([zeroed("sorted", capacity)?, zeroed("sorted", capacity)?]);
        Ok(Self { arrays: [pair()?, pair()?] })
    }

    pub(crate) fn sort(&mut self, step: &Step, job: &SortJob<'_>, scratch: &mut SortScratch) -> Sorted<'_> {
        let (count, n) = (job.count as u32, step.counts[job.count]);
        let mask = u32::MAX.checked_shr(32 - job.key_bits).unwrap_or(0);
        let rows = ScanInfo { count, capacity: n, per_block: BLOCK as u32, rows: 256 };
        let SortScratch { digits, totals } = scratch;
        for pass in 0..passes(job.key_bits) {
            let shift = 8 * pass;
            let positions = u32::from(pass == 0 && job.values.is_none());
            let info = Pass { shift, mask: (mask >> shift) & 255, count, capacity: n, positions };
            let [even, odd] = &mut self.arrays;
            let (to, from) = if pass & 1 == 0 { (even, odd) } else { (odd, even) };
            let (keys, values) =
                if pass == 0 { (job.keys, job.values.unwrap_or(job.keys)) } else { (&from[0][..], &from[1][..]) };
            let [keys_out, values_out] = to;
            histogram(&info, step, keys, digits);
            scan(&rows, step, digits, totals);
            scatter(&info, step, keys, values, digits, totals, keys_out, values_out);
        }
        self.sorted(job.key_bits)
    }

    /// The arrays that hold the result of a sort by `key_bits`.
    pub(crate) fn sorted(&self, key_bits: u32) -> Sorted<'_> {
        let [keys, values] = &self.arrays[(passes(key_bits) as usize - 1) & 1];
        (keys, values)
    }
}

fn passes(key_bits: u32) -> u32 {
    key_bits.div_ceil(8).max(1)
}

impl SortScratch {
    pub(crate) fn new(capacity: usize) -> Result<Self, Error> {
        let digits = 256 * capacity.div_ceil(BLOCK).max(1);
        Ok(Self { digits: zeroed("scan", digits)?, totals: zeroed("scan", 256)? })
    }
}
