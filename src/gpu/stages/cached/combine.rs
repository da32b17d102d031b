//! Host side of `shaders/cached/combine.wgsl`: a workgroup a tile, for the heavy row that begins there.

use crate::{
    gpu::engine::call::{Call, Groups},
    table::layout::MERGE_CHUNK,
    wgsl::{
        Access::{Read, ReadWrite, Uniform},
        Kernel,
    },
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "combine",
    workgroup: 256,
    bindings: &[(Uniform, "params"), (Read, "targets"), (Read, "segment"), (ReadWrite, "scratch")],
};

/// The partial rows of a merge, and whose they are.
pub(crate) struct Partial<'a> {
    pub(crate) targets: &'a wgpu::Buffer,
    pub(crate) segment: &'a wgpu::Buffer,
    pub(crate) scratch: &'a wgpu::Buffer,
}

/// Of at most `most` sorted accesses; `cut` is the width of a Quad, and the cache's windows, which matter to the choice of pipelines only.
pub(crate) fn record(call: &mut Call<'_>, uniform: &wgpu::Buffer, cut: (u32, u32), partial: &Partial<'_>, most: u32) {
    let bindings = [
        uniform.as_entire_binding(),
        partial.targets.as_entire_binding(),
        partial.segment.as_entire_binding(),
        partial.scratch.as_entire_binding(),
    ];
    call.launch(&KERNEL, cut, &bindings, &Groups::capped(most.div_ceil(MERGE_CHUNK), 1));
}
