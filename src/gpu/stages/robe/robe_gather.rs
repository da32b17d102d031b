//! Host side of `shaders/robe/robe_gather.wgsl`: pools bags; a workgroup writes several output rows.

use crate::{
    gpu::{
        engine::call::{Call, Groups, StageBindings, kernel},
        stages::{
            cached::space::Bound,
            robe::{
                array::Array,
                space::{Space, Uniforms},
            },
        },
    },
    table::layout::{POOL_NONE, Params},
    wgsl::{Cut, Kernel},
};

kernel! {
    "robe_gather", workgroup 256,
    params: Uniform,
    robe: Uniform,
    offsets: Read,
    hashes: Read,
    weights: Read,
    window: Read,
    access: ReadWrite,
    outputs: ReadWrite,
}

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
    let bindings = Bindings {
        params: uniforms.params.as_entire_binding(),
        robe: uniforms.robe.as_entire_binding(),
        offsets: batch.offsets.clone(),
        hashes: space.hashes.as_entire_binding(),
        weights: batch.weights.clone(),
        window: array.memory[0].as_entire_binding(),
        access: space.access.as_entire_binding(),
        outputs: outputs.clone(),
    };
    let others = array.memory[1..].iter().map(wgpu::Buffer::as_entire_binding);
    let bindings: Vec<_> = bindings.list().as_ref().iter().cloned().chain(others).collect();
    // With pooling none each share of a workgroup takes four rows.
    let per_group = 256 / params.lanes * if params.pooling == POOL_NONE { 4 } else { 1 };
    call.launch(
        kernel,
        Cut { windows: array.memory.len() as u32, ..Cut::ONE },
        &bindings,
        &Groups::of(rows, per_group),
    );
}
