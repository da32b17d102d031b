//! Host side of `shaders/cached/wanted.wgsl`: the rows that a caller's shaders want become the accesses of a step.

use crate::{
    gpu::{
        engine::call::{Call, Groups, kernel},
        stages::cached::space::Space,
    },
    table::layout::Params,
};

kernel! {
    "wanted", workgroup 256,
    params: Uniform,
    feedback: ReadWrite,
    step: ReadWrite,
    keys: ReadWrite,
}

pub(crate) fn record(
    call: &mut Call<'_>,
    params: &Params,
    uniform: &wgpu::Buffer,
    feedback: &wgpu::Buffer,
    space: &Space,
) {
    let bindings = Bindings {
        params: uniform.as_entire_binding(),
        feedback: feedback.as_entire_binding(),
        step: space.step.as_entire_binding(),
        keys: space.keys.as_entire_binding(),
    };
    call.dispatch(bindings, &Groups::of(params.indices, 256));
}
