//! Host side of `shaders/robe/robe_covered.wgsl`: lists the weights that chunks cover, and the gradient of each.

use crate::gpu::{
    engine::call::{Call, Groups, kernel},
    stages::robe::space::{Due, Runs},
};

kernel! {
    "robe_covered", workgroup 256,
    params: Uniform,
    robe: Uniform,
    targets: Read,
    accesses: Read,
    grad_outputs: Read,
    scratch: Read,
    runs: Read,
    blocks: Read,
    locations: ReadWrite,
    sums: ReadWrite,
}

pub(crate) fn record(
    call: &mut Call<'_>,
    due: &Due<'_>,
    runs: &Runs,
    [locations, sums]: [&wgpu::BindingResource<'_>; 2],
) {
    let bindings = Bindings {
        params: due.uniforms.params.as_entire_binding(),
        robe: due.uniforms.robe.as_entire_binding(),
        targets: due.scratch.targets.as_entire_binding(),
        accesses: due.scratch.accesses.as_entire_binding(),
        grad_outputs: due.grad_outputs.clone(),
        scratch: due.scratch.scratch.as_entire_binding(),
        runs: runs.runs.as_entire_binding(),
        blocks: runs.blocks.as_entire_binding(),
        locations: locations.clone(),
        sums: sums.clone(),
    };
    call.dispatch(bindings, &Groups::capped((due.starts() * due.robe.reach).min(due.robe.weights), 256));
}
