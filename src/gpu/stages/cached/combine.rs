//! Host side of `shaders/cached/combine.wgsl`: one workgroup for each tile adds up the heavy row that begins there.

use crate::{
    gpu::engine::call::{Call, Groups, StageBindings, kernel},
    table::layout::MERGE_CHUNK,
    wgsl::Cut,
};

kernel! {
    "combine", workgroup 256,
    params: Uniform,
    targets: Read,
    segment: Read,
    scratch: ReadWrite,
}

/// The partial rows of a merge, and the rows that they belong to.
pub(crate) struct Partial<'a> {
    pub(crate) targets: &'a wgpu::Buffer,
    pub(crate) segment: &'a wgpu::Buffer,
    pub(crate) scratch: &'a wgpu::Buffer,
}

/// Records the stage for at most `most` sorted accesses. `cut` has the width of a Quad, which chooses the
/// pipeline.
pub(crate) fn record(call: &mut Call<'_>, uniform: &wgpu::Buffer, cut: Cut, partial: &Partial<'_>, most: u32) {
    let bindings = Bindings {
        params: uniform.as_entire_binding(),
        targets: partial.targets.as_entire_binding(),
        segment: partial.segment.as_entire_binding(),
        scratch: partial.scratch.as_entire_binding(),
    };
    call.launch(&KERNEL, cut, bindings.list().as_ref(), &Groups::capped(most.div_ceil(MERGE_CHUNK), 1));
}
