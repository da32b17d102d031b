//! Dedup by sort (Yang 2020, section 5.1): sorts keys and finds where each distinct key begins. The sort is followed by two dispatches: heads
//! and segments.

use crate::{
    gpu::{
        engine::call::Call,
        stages::sort::{
            heads, segments, sort_small,
            space::{DedupTo, SortJob, SortScratch, SortSpace, Sorted},
        },
    },
    table::layout::DedupInfo,
};

pub(crate) fn record<'s>(
    call: &mut Call<'_>,
    step: &wgpu::Buffer,
    job: &SortJob<'_>,
    space: &'s SortSpace,
    scratch: &SortScratch,
    to: &DedupTo<'_>,
) -> Sorted<'s> {
    if job.capacity <= sort_small::MOST {
        let sorted = space.sorted(job.key_bits);
        sort_small::record(call, step, job, &sorted, Some(to), scratch);
        return sorted;
    }
    record_large(call, step, job, space, scratch, to)
}

/// Records the dedup for many keys, whatever the number of keys.
pub(crate) fn record_large<'s>(
    call: &mut Call<'_>,
    step: &wgpu::Buffer,
    job: &SortJob<'_>,
    space: &'s SortSpace,
    scratch: &SortScratch,
    to: &DedupTo<'_>,
) -> Sorted<'s> {
    let sorted = space.record_large(call, step, job, scratch);
    let (capacity, count) = (job.capacity, job.count as u32);
    let info = DedupInfo { capacity, count, segments: to.segments as u32, valid: to.valid as u32 };
    let info = call.context.uniform(&info);
    let heads = &scratch.digits[0];
    heads::record(call, &info, step, sorted.keys, heads, capacity);
    segments::record(call, &info, step, sorted.keys, heads, to, capacity);
    sorted
}
