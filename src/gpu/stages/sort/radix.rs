//! A stable radix sort of (key, value) pairs, 8 bits a pass. The number of keys stays on the device.
//!
//! A pass is three dispatches, whatever the number of keys: histogram reads the keys (4 bytes a pair), scan sums the counts of the blocks,
//! scatter reads and writes pairs (16 bytes). The counts are 1 KiB for a block of 3,072 keys, written once, read and written once, read
//! once: 1.3 bytes a pair. That makes 21.3 bytes for a pair and pass, 4 fewer if values are positions and need not be read; 85 bytes a pair
//! for 32-bit keys. Up to 1,024 keys are sorted in one dispatch.

use crate::{
    gpu::{
        engine::call::Call,
        stages::sort::{
            histogram, scan, scatter, sort_small,
            space::{BLOCK, SortJob, SortScratch, SortSpace, Sorted, Source, passes},
        },
    },
    table::layout::{Pass, ScanInfo},
};

impl SortSpace {
    /// Records the sort. Its result stays valid until the next sort into this space.
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

    /// Records the sort for many keys, whatever the number of keys.
    pub(crate) fn record_large(
        &self,
        call: &mut Call<'_>,
        step: &wgpu::Buffer,
        job: &SortJob<'_>,
        scratch: &SortScratch,
    ) -> Sorted<'_> {
        let (capacity, count) = (job.capacity, job.count as u32);
        let rows = ScanInfo { count, capacity, per_block: BLOCK, rows: 256 };
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
}
