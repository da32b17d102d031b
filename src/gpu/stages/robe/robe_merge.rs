//! Host side of `shaders/robe/robe_merge.wgsl`: the starts with many chunks.

use crate::{
    gpu::{
        engine::call::{Call, Groups},
        stages::robe::space::{Chunks, Uniforms},
    },
    table::layout::MERGE_CHUNK,
    wgsl::{
        Access::{Read, ReadWrite, Uniform},
        Kernel,
    },
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "robe_merge",
    workgroup: 256,
    bindings: &[
        (Uniform, "params"),
        (Uniform, "robe"),
        (Read, "targets"),
        (Read, "segment"),
        (Read, "accesses"),
        (Read, "grad_outputs"),
        (ReadWrite, "scratch"),
    ],
};

pub(crate) fn record(
    call: &mut Call<'_>,
    uniforms: &Uniforms,
    lanes: u32,
    (chunks, count): (&Chunks, u32),
    grad_outputs: &wgpu::BindingResource<'_>,
) {
    let bindings = [
        uniforms.params.as_entire_binding(),
        uniforms.robe.as_entire_binding(),
        chunks.targets.as_entire_binding(),
        chunks.segment.as_entire_binding(),
        chunks.accesses.as_entire_binding(),
        grad_outputs.clone(),
        chunks.scratch.as_entire_binding(),
    ];
    call.dispatch(&KERNEL, &bindings, &Groups::capped(2 * count.div_ceil(MERGE_CHUNK), 256 / lanes));
}
