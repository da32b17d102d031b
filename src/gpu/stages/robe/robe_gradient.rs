//! Host side of `shaders/robe/robe_gradient.wgsl`: the gradient of all shared weights.

use crate::gpu::{
    engine::call::{Call, Groups, kernel},
    stages::robe::space::Due,
};

kernel! {
    "robe_gradient", workgroup 256,
    params: Uniform,
    robe: Uniform,
    targets: Read,
    accesses: Read,
    grad_outputs: Read,
    scratch: Read,
    sums: ReadWrite,
}

pub(crate) fn record(call: &mut Call<'_>, due: &Due<'_>, sums: &wgpu::BindingResource<'_>) {
    let bindings = Bindings {
        params: due.uniforms.params.as_entire_binding(),
        robe: due.uniforms.robe.as_entire_binding(),
        targets: due.scratch.targets.as_entire_binding(),
        accesses: due.scratch.accesses.as_entire_binding(),
        grad_outputs: due.grad_outputs.clone(),
        scratch: due.scratch.scratch.as_entire_binding(),
        sums: sums.clone(),
    };
    call.dispatch(bindings, &Groups::capped(due.robe.weights, 256));
}
