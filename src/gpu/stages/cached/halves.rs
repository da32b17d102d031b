//! Host side of `shaders/cached/halves.wgsl`: rounds the outputs of a forward to FP16.

use crate::{
    gpu::engine::call::{Call, Groups, kernel},
    table::layout::Halves,
};

kernel! {
    "halves", workgroup 256,
    halves: Uniform,
    sums: Read,
    outputs: ReadWrite,
}

/// Records the stage for the first `elements` of `sums`.
pub(crate) fn record(call: &mut Call<'_>, elements: u32, sums: &wgpu::Buffer, outputs: &wgpu::BindingResource<'_>) {
    let uniform = call.context.uniform(&Halves { elements, ..Halves::default() });
    let bindings =
        Bindings { halves: uniform.as_entire_binding(), sums: sums.as_entire_binding(), outputs: outputs.clone() };
    call.dispatch(bindings, &Groups::of(elements.div_ceil(2), 256));
}
