//! Host side of `shaders/robe/robe_scatter.wgsl`: adds every gradient to its weight's sum, atomically.

use crate::gpu::{
    engine::call::{Call, Groups, kernel},
    stages::robe::space::{Scattered, Space, Uniforms},
};

kernel! {
    "robe_scatter", workgroup 256,
    params: Uniform,
    robe: Uniform,
    scaler: Uniform,
    hashes: Read,
    access: Read,
    grad_outputs: Read,
    sums: ReadWrite,
    covered: ReadWrite,
}

pub(crate) fn record(
    call: &mut Call<'_>,
    uniforms: &Uniforms,
    scaler: &wgpu::Buffer,
    space: &Space,
    grad_outputs: &wgpu::BindingResource<'_>,
    scattered: &Scattered,
    elements: u32,
) {
    let bindings = Bindings {
        params: uniforms.params.as_entire_binding(),
        robe: uniforms.robe.as_entire_binding(),
        scaler: scaler.as_entire_binding(),
        hashes: space.hashes.as_entire_binding(),
        access: space.access.as_entire_binding(),
        grad_outputs: grad_outputs.clone(),
        sums: scattered.sums.as_entire_binding(),
        covered: scattered.covered.as_entire_binding(),
    };
    call.dispatch(bindings, &Groups::capped(elements, 256));
}
