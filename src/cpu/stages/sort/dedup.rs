//! Dedup by sort, with the stages of `gpu/stages/sort/dedup.rs`.

use crate::{
    cpu::stages::sort::{
        heads::heads,
        radix::{SortJob, SortScratch, SortSpace, Sorted},
        segments::segments,
    },
    table::layout::{DedupInfo, Step},
};

/// The arrays and counts to which a dedup writes.
pub(crate) struct DedupTo<'a> {
    pub(crate) segment: &'a mut [u32],
    pub(crate) starts: &'a mut [u32],
    /// The step's count that gets the number of distinct keys.
    pub(crate) segments: usize,
    /// The step's count that gets the number of keys other than NONE.
    pub(crate) valid: usize,
}

pub(crate) fn dedup<'s>(
    step: &mut Step,
    job: &SortJob<'_>,
    space: &'s mut SortSpace,
    scratch: &mut SortScratch,
    to: &mut DedupTo<'_>,
) -> Sorted<'s> {
    let sorted = space.sort(step, job, scratch);
    let n = step.counts[job.count];
    let info = DedupInfo { capacity: n, count: job.count as u32, segments: to.segments as u32, valid: to.valid as u32 };
    let blocks = &mut scratch.digits[0];
    heads(&info, step, sorted.0, blocks);
    segments(&info, step, sorted.0, blocks, to.segment, to.starts);
    sorted
}
