//! A stable radix sort of (key, value) pairs, 8 bits a pass. The number of keys stays on the device.
//!
//! A pass is three dispatches, whatever the number of keys: histogram reads the keys (4 bytes a pair), scan goes over the
//! counts of the blocks, scatter reads and writes pairs (16 bytes). The counts are 1 KiB a block of 3,072 keys, written once,
//! read and written once, read once: 1.3 bytes a pair. That makes 21.3 bytes a pair and pass, 4 fewer where values are
//! positions and need not be read; 85 bytes a pair for 32-bit keys. Up to 1,024 keys are sorted in one dispatch.

use crate::{
    error::Error,
    gpu::{
        engine::{call::Call, context::Context},
        stages::{
            cached::space::{Make, in_context},
            sort::{histogram, scan, scatter, sort_small},
        },
    },
    table::layout::{Pass, ScanInfo},
};

/// Two arrays that belong together.
#[derive(Clone, Copy)]
pub(crate) struct Pairs<'a> {
    pub(crate) keys: &'a wgpu::Buffer,
    pub(crate) values: &'a wgpu::Buffer,
}

/// The result of a sort.
pub(crate) type Sorted<'a> = Pairs<'a>;

/// Where a pass reads.
pub(crate) struct Source<'a> {
    pub(crate) keys: wgpu::BindingResource<'a>,
    pub(crate) values: wgpu::BindingResource<'a>,
}

/// Where sorted pairs go: two sets of arrays, used in turn.
#[derive(Debug)]
pub(crate) struct SortSpace<B = wgpu::Buffer> {
    pub(crate) arrays: [[B; 2]; 2],
}

/// What every sort and dedup of up to `capacity` keys needs in passing; several sorts share it.
#[derive(Debug)]
pub(crate) struct SortScratch<B = wgpu::Buffer> {
    pub(crate) digits: B,
    pub(crate) totals: B,
}

/// What is sorted, and how.
pub(crate) struct SortJob<'a> {
    /// The keys; left as they are.
    pub(crate) keys: wgpu::BindingResource<'a>,
    /// Their values, or `None` for the keys' positions.
    pub(crate) values: Option<wgpu::BindingResource<'a>>,
    /// Most keys there can be.
    pub(crate) capacity: u32,
    /// Which of the step's counts tells how many there are.
    pub(crate) count: usize,
    /// How many low bits of a key order it.
    pub(crate) key_bits: u32,
}

impl SortJob<'_> {
    /// The bits of a key that order it.
    pub(crate) fn mask(&self) -> u32 {
        u32::MAX.checked_shr(32 - self.key_bits).unwrap_or(0)
    }
}

/// Passes of 8 bits that a sort takes.
pub(crate) fn passes(key_bits: u32) -> u32 {
    key_bits.div_ceil(8).max(1)
}

impl SortSpace {
    pub(crate) fn new(context: &Context, capacity: u32) -> Result<Self, Error> {
        Self::of(&mut in_context(context), capacity)
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
        if job.capacity <= sort_small::MOST {
            let sorted = self.sorted(job.key_bits);
            sort_small::record(call, step, job, &sorted, None, scratch);
            return sorted;
        }
        self.record_large(call, step, job, scratch)
    }

    /// As for more keys than one workgroup takes, however many there are.
    pub(crate) fn record_large(
        &self,
        call: &mut Call<'_>,
        step: &wgpu::Buffer,
        job: &SortJob<'_>,
        scratch: &SortScratch,
    ) -> Sorted<'_> {
        let (capacity, count) = (job.capacity, job.count as u32);
        let rows = ScanInfo { count, capacity, per_block: histogram::BLOCK, rows: 256 };
        let mut from =
            Source { keys: job.keys.clone(), values: job.values.clone().unwrap_or_else(|| job.keys.clone()) };
        for pass in 0..passes(job.key_bits) {
            let shift = 8 * pass;
            let positions = u32::from(pass == 0 && job.values.is_none());
            let info = Pass { shift, mask: (job.mask() >> shift) & 255, count, capacity, positions };
            let info = call.context.uniform(&info);
            let to = self.pairs(pass as usize & 1);
            histogram::record(call, &info, step, &from.keys, &scratch.digits, capacity);
            scan::record(call, &rows, step, &scratch.digits, &scratch.totals);
            scatter::record(call, &info, step, &from, scratch, &to, capacity);
            from = Source { keys: to.keys.as_entire_binding(), values: to.values.as_entire_binding() };
        }
        self.sorted(job.key_bits)
    }

    /// Where a sort by `key_bits` has left its result.
    pub(crate) fn sorted(&self, key_bits: u32) -> Sorted<'_> {
        self.pairs((passes(key_bits) as usize - 1) & 1)
    }
}

impl<B> SortSpace<B> {
    /// The list of its buffers.
    pub(crate) fn of(make: &mut Make<'_, B>, capacity: u32) -> Result<Self, Error> {
        let mut array = || make("sorted", u64::from(capacity) * 4);
        Ok(Self { arrays: [[array()?, array()?], [array()?, array()?]] })
    }
}

impl SortScratch {
    pub(crate) fn new(context: &Context, capacity: u32) -> Result<Self, Error> {
        Self::of(&mut in_context(context), capacity)
    }
}

impl<B> SortScratch<B> {
    /// The list of its buffers.
    pub(crate) fn of(make: &mut Make<'_, B>, capacity: u32) -> Result<Self, Error> {
        // A column of 256 counts a block of the sort; more than the one count a block that dedup needs.
        let digits = 256 * u64::from(capacity.div_ceil(histogram::BLOCK).max(1));
        Ok(Self { digits: make("scan", digits * 4)?, totals: make("scan", 256 * 4)? })
    }
}
