//! Host side of `shaders/sort/segments.wgsl`: numbers runs of equal keys.

use crate::gpu::{
    engine::call::{Call, Groups, kernel},
    stages::sort::{
        heads::BLOCK,
        space::{DedupTo, SortScratch},
    },
};

kernel! {
    "segments", workgroup 256,
    info: Uniform,
    step: ReadWrite,
    keys: Read,
    heads: Read,
    totals: Read,
    segment: ReadWrite,
    starts: ReadWrite,
}

pub(crate) fn record(
    call: &mut Call<'_>,
    info: &wgpu::Buffer,
    step: &wgpu::Buffer,
    keys: &wgpu::Buffer,
    scratch: &SortScratch,
    to: &DedupTo<'_>,
    capacity: u32,
) {
    let bindings = Bindings {
        info: info.as_entire_binding(),
        step: step.as_entire_binding(),
        keys: keys.as_entire_binding(),
        heads: scratch.digits.as_entire_binding(),
        totals: scratch.totals.as_entire_binding(),
        segment: to.segment.as_entire_binding(),
        starts: to.starts.as_entire_binding(),
    };
    let groups = Groups::capped(capacity, BLOCK);
    call.dispatch(bindings, &groups);
}
