//! Host side of `shaders/robe/robe_covered.wgsl`: the weights that chunks cover, and the gradient by each.

use crate::{
    gpu::{
        engine::call::{Call, Groups},
        stages::robe::space::{Due, Runs},
    },
    wgsl::{
        Access::{Read, ReadWrite, Uniform},
        Kernel,
    },
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "robe_covered",
    workgroup: 256,
    bindings: &[
        (Uniform, "params"),
        (Uniform, "robe"),
        (Read, "targets"),
        (Read, "accesses"),
        (Read, "grad_outputs"),
        (Read, "scratch"),
        (Read, "runs"),
        (Read, "blocks"),
        (ReadWrite, "locations"),
        (ReadWrite, "sums"),
    ],
};

pub(crate) fn record(
    call: &mut Call<'_>,
    due: &Due<'_>,
    runs: &Runs,
    [locations, sums]: [&wgpu::BindingResource<'_>; 2],
) {
    let [params, robe, targets, accesses, grad_outputs, scratch] = due.bindings();
    let (each, blocks) = (runs.runs.as_entire_binding(), runs.blocks.as_entire_binding());
    let to = [locations.clone(), sums.clone()];
    let [locations, sums] = to;
    let bindings = [params, robe, targets, accesses, grad_outputs, scratch, each, blocks, locations, sums];
    call.dispatch(&KERNEL, &bindings, &Groups::capped((due.starts() * due.robe.reach).min(due.robe.weights), 256));
}
