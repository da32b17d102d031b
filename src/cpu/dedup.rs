//! Dedup by sort, as `gpu/dedup.rs` has it.

use super::{
    heads::heads,
    scan,
    segments::segments,
    sort::{SortJob, SortScratch, SortSpace, Sorted},
};
use crate::layout::{DedupInfo, Step};

/// Where a dedup leaves its results.
pub(super) struct DedupTo<'a> {
    pub(super) segment: &'a mut [u32],
    pub(super) starts: &'a mut [u32],
    /// Which of the step's counts gets the number of distinct keys.
    pub(super) segments: usize,
    /// Which of the step's counts gets the number of keys other than NONE.
    pub(super) valid: usize,
}

pub(super) fn dedup<'s>(
    step: &mut Step,
    job: &SortJob<'_>,
    space: &'s mut SortSpace,
    scratch: &mut SortScratch,
    to: &mut DedupTo<'_>,
) -> Sorted<'s> {
    let sorted = space.sort(step, job, scratch);
    let n = step.counts[job.count];
    let info = DedupInfo { capacity: n, count: job.count as u32, segments: to.segments as u32, valid: to.valid as u32 };
    heads(&info, step, sorted.0, to.segment);
    scan::scan_all(&mut to.segment[..n as usize], &mut scratch.sums);
    segments(&info, step, sorted.0, to.segment, to.starts);
    sorted
}
