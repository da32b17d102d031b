//! Host side of `shaders/sort/segments.wgsl`: numbers runs of equal keys.

use crate::gpu::{
    engine::call::{Call, Groups, kernel},
    stages::sort::{heads::BLOCK, space::DedupTo},
};

kernel! {
    "segments", workgroup 256,
    info: Uniform,
    step: ReadWrite,
    keys: Read,
    heads: Read,
    segment: ReadWrite,
    starts: ReadWrite,
}

pub(crate) fn record(
    call: &mut Call<'_>,
    info: &wgpu::Buffer,
    step: &wgpu::Buffer,
    keys: &wgpu::Buffer,
    heads: &wgpu::Buffer,
    to: &DedupTo<'_>,
    capacity: u32,
) {
    let bindings = Bindings {
        info: info.as_entire_binding(),
        step: step.as_entire_binding(),
        keys: keys.as_entire_binding(),
        heads: heads.as_entire_binding(),
        segment: to.segment.as_entire_binding(),
        starts: to.starts.as_entire_binding(),
    };
    let groups = Groups::capped(capacity, BLOCK);
    call.dispatch(bindings, &groups);
}
