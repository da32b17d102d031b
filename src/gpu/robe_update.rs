//! Host side of `shaders/robe_update.wgsl`: the weights that chunks cover.

use super::{
    call::{Call, Groups},
    robe::{Array, Chunks, Uniforms},
};
use crate::layout::Robe;
use crate::shader::{
    Access::{Read, ReadWrite, Uniform},
    Kernel,
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "robe_update",
    workgroup: 256,
    bindings: &[
        (Uniform, "params"),
        (Uniform, "robe"),
        (Read, "targets"),
        (Read, "accesses"),
        (Read, "grad_outputs"),
        (Read, "scratch"),
        (ReadWrite, "memory"),
        (ReadWrite, "states"),
        (ReadWrite, "tables"),
    ],
};

pub(crate) fn record(
    call: &mut Call<'_>,
    uniforms: &Uniforms,
    robe: &Robe,
    array: &Array,
    (chunks, count): (&Chunks, u32),
    grad_outputs: &wgpu::BindingResource<'_>,
) {
    let bindings = [
        uniforms.params.as_entire_binding(),
        uniforms.robe.as_entire_binding(),
        chunks.targets.as_entire_binding(),
        chunks.accesses.as_entire_binding(),
        grad_outputs.clone(),
        chunks.scratch.as_entire_binding(),
        array.memory.as_entire_binding(),
        array.states.as_entire_binding(),
        array.tables.as_entire_binding(),
    ];
    let weights = if robe.dense == 1 { robe.weights } else { count * robe.reach };
    call.dispatch(&KERNEL, &bindings, &Groups::capped(weights, 256));
}
