//! Host side of `shaders/scaler/inspect.wgsl`: finds the greatest magnitude among scaled gradients.

use crate::{
    gpu::engine::{
        call::{Call, Groups, kernel},
        context::Context,
    },
    table::layout::Inspected,
};

kernel! {
    "inspect", workgroup 256,
    inspected: Uniform,
    gradients: Read,
    greatest: ReadWrite,
}

/// Number of words that an invocation reads in each loop.
const EACH: u32 = 4;

pub(crate) fn record(
    call: &mut Call<'_>,
    context: &Context,
    inspected: &Inspected,
    gradients: &wgpu::BindingResource<'_>,
    greatest: &wgpu::Buffer,
) {
    let uniform = context.uniform(inspected);
    let words = inspected.elements.div_ceil(1 + inspected.half);
    let bindings = Bindings {
        inspected: uniform.as_entire_binding(),
        gradients: gradients.clone(),
        greatest: greatest.as_entire_binding(),
    };
    call.dispatch(bindings, &Groups::capped(words, 256 * EACH));
}
