//! Host side of `shaders/robe/robe_gradient.wgsl`: the gradient by all shared weights.

use crate::{
    gpu::{
        engine::call::{Call, Groups},
        stages::robe::space::Due,
    },
    wgsl::{
        Access::{Read, ReadWrite, Uniform},
        Kernel,
    },
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "robe_gradient",
    workgroup: 256,
    bindings: &[
        (Uniform, "params"),
        (Uniform, "robe"),
        (Read, "targets"),
        (Read, "accesses"),
        (Read, "grad_outputs"),
        (Read, "scratch"),
        (ReadWrite, "sums"),
    ],
};

pub(crate) fn record(call: &mut Call<'_>, due: &Due<'_>, sums: &wgpu::BindingResource<'_>) {
    let [params, robe, targets, accesses, grad_outputs, scratch] = due.bindings();
    let bindings = [params, robe, targets, accesses, grad_outputs, scratch, sums.clone()];
    call.dispatch(&KERNEL, &bindings, &Groups::capped(due.robe.weights, 256));
}
