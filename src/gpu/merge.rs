//! Host side of `shaders/merge.wgsl`: a workgroup for every 32 sorted accesses.

use super::{
    call::{Call, Groups},
    sort::Sorted,
    space::Space,
};
use crate::shader::{
    Access::{Read, ReadWrite, Uniform},
    Kernel,
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "merge",
    workgroup: 64,
    bindings: &[
        (Uniform, "params"),
        (ReadWrite, "step"),
        (Read, "order"),
        (Read, "segment"),
        (Read, "access"),
        (Read, "grad_outputs"),
        (ReadWrite, "grads"),
        (ReadWrite, "partials"),
    ],
};

/// Sorted accesses of a workgroup: `MERGE_TILE` in `shaders/shared/merge.wgsl`.
pub(crate) const TILE: u32 = 32;

pub(crate) fn record(
    call: &mut Call<'_>,
    uniform: &wgpu::Buffer,
    space: &Space,
    sorted: &Sorted<'_>,
    indices: u32,
    grad_outputs: &wgpu::BindingResource<'_>,
) {
    let bindings = [
        uniform.as_entire_binding(),
        space.step.as_entire_binding(),
        sorted.values.as_entire_binding(),
        space.segment.as_entire_binding(),
        space.access.as_entire_binding(),
        grad_outputs.clone(),
        space.grads.as_entire_binding(),
        space.partials.as_entire_binding(),
    ];
    call.dispatch(&KERNEL, &bindings, &Groups::of(indices, TILE));
}
