//! Host side of `shaders/sort/sort_small.wgsl`: sorts, and dedups, few keys in one dispatch.

use crate::{
    gpu::{
        engine::call::{Call, Groups, kernel},
        stages::sort::space::{DedupTo, Pairs, SortJob, SortScratch},
    },
    table::layout::SmallInfo,
};

kernel! {
    "sort_small", workgroup 256,
    info: Uniform,
    step: ReadWrite,
    keys_in: Read,
    values_in: Read,
    keys_out: ReadWrite,
    values_out: ReadWrite,
    segment: ReadWrite,
    starts: ReadWrite,
}

/// Most keys that the stage takes: `SMALL` in `shaders/shared/sort_small.wgsl`.
pub(crate) const MOST: u32 = 1024;

/// Records the sort, and a dedup into `dedup` if there is one.
pub(crate) fn record(
    call: &mut Call<'_>,
    step: &wgpu::Buffer,
    job: &SortJob<'_>,
    to: &Pairs<'_>,
    dedup: Option<&DedupTo<'_>>,
    scratch: &SortScratch,
) {
    let info = SmallInfo {
        capacity: job.capacity,
        count: job.count as u32,
        mask: job.mask(),
        positions: u32::from(job.values.is_none()),
        dedup: u32::from(dedup.is_some()),
        segments: dedup.map_or(0, |dedup| dedup.segments as u32),
        valid: dedup.map_or(0, |dedup| dedup.valid as u32),
        pad0: 0,
    };
    let uniform = call.context.uniform(&info);
    // Without a dedup the kernel does not write to the last two bindings.
    let (segment, starts) = dedup.map_or((&scratch.digits[0], &scratch.totals), |dedup| (dedup.segment, dedup.starts));
    let bindings = Bindings {
        info: uniform.as_entire_binding(),
        step: step.as_entire_binding(),
        keys_in: job.keys.clone(),
        values_in: job.values.clone().unwrap_or_else(|| job.keys.clone()),
        keys_out: to.keys.as_entire_binding(),
        values_out: to.values.as_entire_binding(),
        segment: segment.as_entire_binding(),
        starts: starts.as_entire_binding(),
    };
    call.dispatch(bindings, &Groups::of(job.capacity, MOST));
}
