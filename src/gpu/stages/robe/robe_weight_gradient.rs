//! Host side of `shaders/robe/robe_weight_gradient.wgsl`: the gradient of each index's weight; a workgroup has several indices.

use crate::{
    gpu::{
        engine::{
            bind::WeightGradient,
            call::{Call, Groups, StageBindings, kernel},
        },
        stages::robe::{
            array::Array,
            space::{Space, Uniforms},
        },
    },
    table::layout::Params,
    wgsl::Cut,
};

kernel! {
    "robe_weight_gradient", workgroup 256,
    params: Uniform,
    robe: Uniform,
    offsets: Read,
    access: Read,
    hashes: Read,
    window: Read,
    grad_outputs: Read,
    grad_weights: ReadWrite,
}

pub(crate) fn record(call: &mut Call<'_>, params: &Params, array: &Array, space: &Space, bound: &WeightGradient<'_>) {
    let uniforms = Uniforms::new(call.context, params, &array.robe);
    let bindings = Bindings {
        params: uniforms.params.as_entire_binding(),
        robe: uniforms.robe.as_entire_binding(),
        offsets: bound.offsets.clone(),
        access: space.access.as_entire_binding(),
        hashes: space.hashes.as_entire_binding(),
        window: array.memory[0].as_entire_binding(),
        grad_outputs: bound.grad_outputs.clone(),
        grad_weights: bound.grad_weights.clone(),
    };
    let others = array.memory[1..].iter().map(wgpu::Buffer::as_entire_binding);
    let bindings: Vec<_> = bindings.list().as_ref().iter().cloned().chain(others).collect();
    let cut = Cut { windows: array.memory.len() as u32, ..Cut::ONE };
    call.launch(&KERNEL, cut, &bindings, &Groups::of(params.indices, 256 / params.lanes));
}
