//! A stable radix sort of (key, value) pairs, 8 bits a pass. The number of keys stays on the device.
//!
//! A pass is two dispatches: scan sums the counts of the blocks, and scatter reads and writes pairs (16 bytes) and counts the digits of the
//! next pass where the keys arrive. Before the first pass, histogram reads the keys (4 bytes a pair) and counts theirs. The counts are 1 KiB
//! for a block of 3,072 keys, written once, read and written once, read once, cleared once: 1.7 bytes a pair. That makes 17.7 bytes for a pair
//! and pass, 4 fewer in the first pass if values are positions and need not be read; 75 bytes a pair for 32-bit keys.
//!
//! Where there is room for more than 2^21 keys, histogram counts the digits of every pass. To count them where they arrive takes an atomic
//! operation on memory for each key. By a model of cost (no card has been asked) that is more than to read the keys once more, and less than a
//! dispatch only for fewer keys. Up to 1,024 keys are sorted in one dispatch.
//!
//! Digits of 8 bits are the choice by bytes. Digits of 11 bits take three passes instead of four for 32-bit keys, but 8 KiB of counts a block:
//! 29.3 bytes for a pair and pass, 88 in all. For 24-bit keys they take three passes, as 8 bits do; 12 bits would take two, but their counts
//! alone fill the 16 KiB of workgroup memory.

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

/// The most keys of which scatter counts the digits of the next pass.
const COUNTED_AHEAD: u32 = 1 << 21;

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
        let mut from =
            Source { keys: job.keys.clone(), values: job.values.clone().unwrap_or_else(|| job.keys.clone()) };
        let ahead = capacity <= COUNTED_AHEAD;
        for pass in 0..passes(job.key_bits) {
            let shift = 8 * pass;
            let positions = u32::from(pass == 0 && job.values.is_none());
            let mask = |shift| job.mask().checked_shr(shift).unwrap_or(0) & 255;
            let (mask, next_mask) = (mask(shift), if ahead { mask(shift + 8) } else { 0 });
            let info = call.context.uniform(&Pass { shift, mask, count, capacity, positions, next_mask });
            let turn = pass as usize & 1;
            let (to, digits, next) = (self.pairs(turn), &scratch.digits[turn], &scratch.digits[1 - turn]);
            if pass == 0 || !ahead {
                histogram::record(call, &info, step, &from.keys, digits, capacity);
            }
            let rows = ScanInfo { count, capacity, per_block: BLOCK, rows: 256, clears: u32::from(next_mask != 0) };
            scan::record(call, &rows, step, digits, &scratch.totals, next);
            scatter::record(call, &info, step, &from, (scratch, turn), &to, capacity);
            from = Source { keys: to.keys.as_entire_binding(), values: to.values.as_entire_binding() };
        }
        self.sorted(job.key_bits)
    }
}
