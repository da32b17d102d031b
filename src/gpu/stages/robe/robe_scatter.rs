//! Host side of `shaders/robe/robe_scatter.wgsl`: every gradient added to its weight's sum, atomically.

use crate::{
    gpu::{
        engine::call::{Call, Groups},
        stages::robe::space::{Scattered, Space, Uniforms},
    },
    wgsl::{
        Access::{Read, ReadWrite, Uniform},
        Kernel,
    },
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "robe_scatter",
    workgroup: 256,
    bindings: &[
        (Uniform, "params"),
        (Uniform, "robe"),
        (Uniform, "scaler"),
        (Read, "hashes"),
        (Read, "access"),
        (Read, "grad_outputs"),
        (ReadWrite, "sums"),
        (ReadWrite, "covered"),
    ],
};

pub(crate) fn record(
    call: &mut Call<'_>,
    uniforms: &Uniforms,
    scaler: &wgpu::Buffer,
    space: &Space,
    grad_outputs: &wgpu::BindingResource<'_>,
    scattered: &Scattered,
    elements: u32,
) {
    let bindings = [
        uniforms.params.as_entire_binding(),
        uniforms.robe.as_entire_binding(),
        scaler.as_entire_binding(),
        space.hashes.as_entire_binding(),
        space.access.as_entire_binding(),
        grad_outputs.clone(),
        scattered.sums.as_entire_binding(),
        scattered.covered.as_entire_binding(),
    ];
    call.dispatch(&KERNEL, &bindings, &Groups::capped(elements, 256));
}
