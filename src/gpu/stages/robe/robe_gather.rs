//! Host side of `shaders/robe/robe_gather.wgsl`: some output rows a workgroup.

use crate::{
    gpu::{
        engine::call::{Call, Groups},
        stages::{
            cached::space::Bound,
            robe::{
                array::Array,
                space::{Space, Uniforms},
            },
        },
    },
    table::layout::{POOL_NONE, Params},
    wgsl::{
        Access::{Read, ReadWrite, Uniform},
        Kernel,
    },
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
        (Read, "window"),
        (ReadWrite, "access"),
        (ReadWrite, "outputs"),
    ],
};

/// `kernel` is this stage, or `robe_decode` for a packed array.
pub(crate) fn record(
    call: &mut Call<'_>,
    kernel: &Kernel,
    (params, uniforms): (&Params, &Uniforms),
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
        array.memory[0].as_entire_binding(),
        space.access.as_entire_binding(),
        outputs.clone(),
    ];
    let others = array.memory[1..].iter().map(wgpu::Buffer::as_entire_binding);
    let bindings: Vec<_> = bindings.into_iter().chain(others).collect();
    // With pooling none each takes four rows.
    let per_group = 256 / params.lanes * if params.pooling == POOL_NONE { 4 } else { 1 };
    call.launch(kernel, (1, array.memory.len() as u32), &bindings, &Groups::of(rows, per_group));
}
