//! Host side of `shaders/robe_gather.wgsl`: some output rows a workgroup.

use super::{
    call::{Call, Groups},
    robe::{Array, Space, Uniforms},
    space::Bound,
};
use crate::layout::{POOL_NONE, Params};
use crate::shader::{
    Access::{Read, ReadWrite, Uniform},
    Kernel,
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "robe_gather",
    workgroup: 256,
    bindings: &[
        (Uniform, "params"),
        (Uniform, "robe"),
        (Read, "offsets"),
        (Read, "hashes"),
        (Read, "weights"),
        (Read, "memory"),
        (ReadWrite, "access"),
        (ReadWrite, "outputs"),
    ],
};

pub(crate) fn record(
    call: &mut Call<'_>,
    params: &Params,
    uniforms: &Uniforms,
    batch: &Bound<'_>,
    array: &Array,
    space: &Space,
    (outputs, rows): (&wgpu::BindingResource<'_>, u32),
) {
    let bindings = [
        uniforms.params.as_entire_binding(),
        uniforms.robe.as_entire_binding(),
        batch.offsets.clone(),
        space.hashes.as_entire_binding(),
        batch.weights.clone(),
        array.memory.as_entire_binding(),
        space.access.as_entire_binding(),
        outputs.clone(),
    ];
    // With pooling none each takes four rows.
    let per_group = 256 / params.lanes * if params.pooling == POOL_NONE { 4 } else { 1 };
    call.dispatch(&KERNEL, &bindings, &Groups::of(rows, per_group));
}
