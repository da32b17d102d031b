//! Host side of `shaders/scaler/inspect.wgsl`: the greatest magnitude of a scaled gradient.

use crate::{
    gpu::engine::{
        call::{Call, Groups},
        context::Context,
    },
    table::layout::Inspected,
    wgsl::{
        Access::{Read, ReadWrite, Uniform},
        Kernel,
    },
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "inspect",
    workgroup: 256,
    bindings: &[(Uniform, "inspected"), (Read, "gradients"), (ReadWrite, "greatest")],
};

/// Words that an invocation looks at before it goes round.
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
    let bindings = [uniform.as_entire_binding(), gradients.clone(), greatest.as_entire_binding()];
    call.dispatch(&KERNEL, &bindings, &Groups::capped(words, 256 * EACH));
}
