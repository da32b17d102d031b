//! A stable radix sort of (key, value) pairs, 8 bits a pass. The number of keys stays on the device.
//!
//! A pass is two dispatches: scan sums the counts of the blocks, and scatter reads and writes pairs (16 bytes) and counts the digits of the
//! next pass where the keys arrive. Before the first pass, histogram reads the keys (4 bytes a pair) and counts theirs, unless the stage that wrote them
//! has done so. The counts are 1 KiB
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
        engine::call::{Call, Groups, Named},
        stages::{
            HISTOGRAM, SCAN, SCATTER, SORT_SMALL,
            sort::space::{BLOCK, DedupTo, Pairs, SortJob, SortScratch, SortSpace, Sorted, Source, passes},
        },
    },
    table::abi::{Pass, SCAN_SHORT, ScanInfo, SmallInfo},
};

/// The most keys of which scatter counts the digits of the next pass.
const COUNTED_AHEAD: u32 = 1 << 21;
/// Most keys that the stage `sort_small` takes: `SMALL` in `shaders/shared/sort_small.wgsl`.
pub(crate) const SMALL: u32 = 1024;

/// The lowest digit of keys of `key_bits` bits, as a mask, if stages that write up to `capacity` keys count it; else 0.
pub(crate) const fn counted_mask(capacity: u32, key_bits: u32) -> u32 {
    match key_bits {
        _ if capacity <= SMALL || capacity > COUNTED_AHEAD => 0,
        0..8 => (1 << key_bits) - 1,
        _ => 255,
    }
}

impl SortSpace {
    /// Encodes the sort. Its result stays valid until the next sort into this space.
    pub(crate) fn encode(
        &self,
        call: &mut Call<'_>,
        step: &wgpu::Buffer,
        job: &SortJob<'_>,
        scratch: &SortScratch,
    ) -> Sorted<'_> {
        if job.capacity <= SMALL {
            let sorted = self.sorted(job.key_bits);
            encode_small(call, step, job, &sorted, None, scratch);
            return sorted;
        }
        self.encode_large(call, step, job, scratch)
    }

    /// Encodes the sort for many keys, whatever the number of keys.
    pub(crate) fn encode_large(
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
            let counted = job.counted.filter(|_| pass == 0);
            let digits = counted.unwrap_or(&scratch.digits[turn]);
            let (to, next) = (self.pairs(turn), &scratch.digits[1 - turn]);
            let groups = Groups::capped(capacity, BLOCK);
            let both: &[&dyn Named] = &[&("pass_info", info), &("step", step), &("digits", digits)];
            if !ahead || pass == 0 && counted.is_none() {
                call.run(&HISTOGRAM, &[&("keys", &from.keys), &both], &groups);
            }
            let rows = ScanInfo { count, capacity, per_block: BLOCK, rows: 256, clears: u32::from(next_mask != 0) };
            encode_scan(call, &rows, step, digits, &scratch.totals, next);
            let scatter: &[&dyn Named] = &[
                &("keys_in", &from.keys),
                &("values_in", &from.values),
                &("totals", &scratch.totals),
                &("keys_out", to.keys),
                &("values_out", to.values),
                &("next_digits", next),
                &both,
            ];
            call.run(&SCATTER, scatter, &groups);
            from = Source { keys: to.keys.as_entire_binding(), values: to.values.as_entire_binding() };
        }
        self.sorted(job.key_bits)
    }
}

/// Scans the rows of `data` in place, and writes the sum of each row to `totals`. Clears as many rows of `cleared` if `info` says so; it must
/// be another buffer than `data` in any case.
pub(crate) fn encode_scan(
    call: &mut Call<'_>,
    info: &ScanInfo,
    step: &wgpu::Buffer,
    data: &wgpu::Buffer,
    totals: &wgpu::Buffer,
    cleared: &wgpu::Buffer,
) {
    let uniform = call.context.uniform(info);
    let short = info.capacity.div_ceil(info.per_block) <= SCAN_SHORT;
    let from: &[&dyn Named] =
        &[&("info", uniform), &("step", step), &("data", data), &("totals", totals), &("cleared", cleared)];
    call.run(&SCAN, from, &Groups::of(info.rows, if short { 8 } else { 1 }));
}

/// Sorts few keys in one dispatch, and dedups them into `dedup` if there is one.
pub(crate) fn encode_small(
    call: &mut Call<'_>,
    step: &wgpu::Buffer,
    job: &SortJob<'_>,
    to: &Pairs<'_>,
    dedup: Option<&DedupTo<'_>>,
    scratch: &SortScratch,
) {
    let (by_value, base) = dedup.map_or((0, 0), DedupTo::by_value);
    let info = SmallInfo {
        capacity: job.capacity,
        count: job.count as u32,
        mask: job.mask(),
        positions: u32::from(job.values.is_none()),
        dedup: u32::from(dedup.is_some()),
        segments: dedup.map_or(0, |dedup| dedup.segments as u32),
        valid: dedup.map_or(0, |dedup| dedup.valid as u32),
        by_value,
        base,
    };
    let uniform = call.context.uniform(&info);
    // Without a dedup the kernel does not write to the last two bindings.
    let (segment, starts) = dedup.map_or((&scratch.digits[0], &scratch.totals), |dedup| (dedup.segment, dedup.starts));
    let from: &[&dyn Named] = &[
        &("info", uniform),
        &("step", step),
        &("keys_in", &job.keys),
        &("values_in", job.values.as_ref().unwrap_or(&job.keys)),
        &("keys_out", to.keys),
        &("values_out", to.values),
        &("segment", segment),
        &("starts", starts),
    ];
    call.run(&SORT_SMALL, from, &Groups::of(job.capacity, SMALL));
}
