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
    /// Counts of digits, block by block: those of a pass, and those of the next, in turn.
    pub(crate) digits: [Vec<u32>; 2],
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
        let SortScratch { digits, totals } = scratch;
        for pass in 0..passes(job.key_bits) {
            let shift = 8 * pass;
            let positions = u32::from(pass == 0 && job.values.is_none());
            let digit = |shift| mask.checked_shr(shift).unwrap_or(0) & 255;
            let next_mask = digit(shift + 8);
            let info = Pass { shift, mask: digit(shift), count, capacity: n, positions, next_mask };
            let clears = u32::from(next_mask != 0);
            let rows = ScanInfo { count, capacity: n, per_block: BLOCK as u32, rows: 256, clears };
            let ([even, odd], [first, second]) = (&mut self.arrays, &mut *digits);
            let (to, from, now, next) =
                if pass & 1 == 0 { (even, odd, first, second) } else { (odd, even, second, first) };
            let (keys, values) =
                if pass == 0 { (job.keys, job.values.unwrap_or(job.keys)) } else { (&from[0][..], &from[1][..]) };
            let [keys_out, values_out] = to;
            if pass == 0 {
                histogram(&info, step, keys, now);
            }
            scan(&rows, step, now, totals, next);
            scatter(&info, step, keys, values, now, totals, keys_out, values_out, next);
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
        let digits = [zeroed("scan", digits)?, zeroed("scan", digits)?];
        Ok(Self { digits, totals: zeroed("scan", 256)? })
    }
}
