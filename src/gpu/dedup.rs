//! Dedup by sort (P1 section 5.1): sorted keys, where each distinct key begins, and how many there are.

use super::{
    call::Call,
    heads, scan, segments,
    sort::{SortJob, SortScratch, SortSpace, Sorted},
};
use crate::layout::DedupInfo;

/// Where a dedup leaves its results.
pub(crate) struct DedupTo<'a> {
    /// For each sorted key the number of its distinct key.
    pub(crate) segment: &'a wgpu::Buffer,
    /// For each distinct key the place of its first sorted key.
    pub(crate) starts: &'a wgpu::Buffer,
    /// Which of the step's counts gets the number of distinct keys.
    pub(crate) segments: usize,
    /// Which of the step's counts gets the number of keys other than NONE.
    pub(crate) valid: usize,
}

pub(crate) fn record<'s>(
    call: &mut Call<'_>,
    step: &wgpu::Buffer,
    job: &SortJob<'_>,
    space: &'s SortSpace,
    scratch: &SortScratch,
    to: &DedupTo<'_>,
) -> Sorted<'s> {
    let sorted = space.record(call, step, job, scratch);
    let info = DedupInfo {
        capacity: job.capacity,
        count: job.count as u32,
        segments: to.segments as u32,
        valid: to.valid as u32,
    };
    let info = call.context.uniform(&info);
    heads::record(call, &info, step, sorted.keys, to.segment, job.capacity);
    scan::record(call, to.segment, job.capacity, &scratch.sums);
    segments::record(call, &info, step, sorted.keys, to.segment, to.starts, job.capacity);
    sorted
}
