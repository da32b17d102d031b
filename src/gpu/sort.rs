//! A stable radix sort of (key, value) pairs, 8 bits a pass: histogram, scan, scatter. The number of keys stays on the device.

use super::{Context, call::Call, histogram, scan, scatter};
use crate::{Error, layout::Pass};

/// Two arrays that belong together.
#[derive(Clone, Copy)]
pub(crate) struct Pairs<'a> {
    pub(crate) keys: &'a wgpu::Buffer,
    pub(crate) values: &'a wgpu::Buffer,
}

/// The result of a sort.
pub(crate) type Sorted<'a> = Pairs<'a>;

/// Where sorted pairs go: two sets of arrays, used in turn.
#[derive(Debug)]
pub(crate) struct SortSpace {
    pub(crate) arrays: [[wgpu::Buffer; 2]; 2],
}

/// What every sort and scan of up to `capacity` keys needs in passing; several sorts share it.
#[derive(Debug)]
pub(crate) struct SortScratch {
    pub(crate) digits: wgpu::Buffer,
    pub(crate) sums: Vec<wgpu::Buffer>,
}

/// What is sorted, and how.
pub(crate) struct SortJob<'a> {
    /// The keys; left as they are.
    pub(crate) keys: &'a wgpu::Buffer,
    /// Their values, or `None` for the keys' positions.
    pub(crate) values: Option<&'a wgpu::Buffer>,
    /// Most keys there can be.
    pub(crate) capacity: u32,
    /// Which of the step's counts tells how many there are.
    pub(crate) count: usize,
    /// How many low bits of a key order it.
    pub(crate) key_bits: u32,
}

impl SortSpace {
    pub(crate) fn new(context: &Context, capacity: u32) -> Result<Self, Error> {
        let array = || context.buffer("sorted", u64::from(capacity) * 4, wgpu::BufferUsages::empty());
        Ok(Self { arrays: [[array()?, array()?], [array()?, array()?]] })
    }

    fn pairs(&self, which: usize) -> Pairs<'_> {
        Pairs { keys: &self.arrays[which][0], values: &self.arrays[which][1] }
    }

    /// Sorts; the result stays valid until the next sort into this space.
    pub(crate) fn record(
        &self,
        call: &mut Call<'_>,
        step: &wgpu::Buffer,
        job: &SortJob<'_>,
        scratch: &SortScratch,
    ) -> Sorted<'_> {
        let blocks = job.capacity.div_ceil(histogram::BLOCK).max(1);
        let mut from = Pairs { keys: job.keys, values: job.values.unwrap_or(job.keys) };
        let passes = job.key_bits.div_ceil(8).max(1);
        for pass in 0..passes {
            let first = u32::from(pass == 0 && job.values.is_none());
            let info = Pass { shift: 8 * pass, count: job.count as u32, blocks, first };
            let info = call.context.uniform(&info);
            let to = self.pairs(pass as usize & 1);
            histogram::record(call, &info, step, from.keys, &scratch.digits, blocks);
            scan::record(call, &scratch.digits, 256 * blocks, &scratch.sums);
            scatter::record(call, &info, step, &from, &scratch.digits, &to, blocks);
            from = to;
        }
        self.sorted(job.key_bits)
    }

    /// Where a sort by `key_bits` has left its result.
    pub(crate) fn sorted(&self, key_bits: u32) -> Sorted<'_> {
        self.pairs((key_bits.div_ceil(8).max(1) as usize - 1) & 1)
    }
}

impl SortScratch {
    pub(crate) fn new(context: &Context, capacity: u32) -> Result<Self, Error> {
        let digits = 256 * capacity.div_ceil(histogram::BLOCK).max(1);
        let array = |n: u32| context.buffer("scan", u64::from(n) * 4, wgpu::BufferUsages::empty());
        let sums = scan::levels(digits.max(capacity)).into_iter().map(array).collect::<Result<_, _>>()?;
        Ok(Self { digits: array(digits)?, sums })
    }
}
