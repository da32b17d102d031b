//! Host side of `shaders/robe/robe_merge.wgsl`: sums the chunks of starts with many chunks.

use crate::{
    gpu::{
        engine::call::{Call, Groups, kernel},
        stages::robe::space::{Chunks, Uniforms},
    },
    table::layout::MERGE_CHUNK,
};

kernel! {
    "robe_merge", workgroup 256,
    params: Uniform,
    robe: Uniform,
    targets: Read,
    segment: Read,
    accesses: Read,
    grad_outputs: Read,
    scratch: ReadWrite,
}

pub(crate) fn record(
    call: &mut Call<'_>,
    uniforms: &Uniforms,
    lanes: u32,
    (chunks, count): (&Chunks, u32),
    grad_outputs: &wgpu::BindingResource<'_>,
) {
    let bindings = Bindings {
        params: uniforms.params.as_entire_binding(),
        robe: uniforms.robe.as_entire_binding(),
        targets: chunks.targets.as_entire_binding(),
        segment: chunks.segment.as_entire_binding(),
        accesses: chunks.accesses.as_entire_binding(),
        grad_outputs: grad_outputs.clone(),
        scratch: chunks.scratch.as_entire_binding(),
    };
    call.dispatch(bindings, &Groups::capped(2 * count.div_ceil(MERGE_CHUNK), 256 / lanes));
}
