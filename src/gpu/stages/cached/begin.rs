//! Host side of `shaders/cached/begin.wgsl`: whether the step takes place.

use crate::{
    gpu::{
        engine::call::{Call, Groups},
        stages::cached::{space::Bound, tables::Numbering},
    },
    wgsl::{
        Access::{Read, ReadWrite, Uniform},
        Kernel,
    },
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "begin",
    workgroup: 1,
    bindings: &[
        (Uniform, "params"),
        (Read, "indices"),
        (Read, "offsets"),
        (Read, "features"),
        (ReadWrite, "tables"),
        (ReadWrite, "step"),
    ],
};

pub(crate) fn record(
    call: &mut Call<'_>,
    uniform: &wgpu::Buffer,
    batch: &Bound<'_>,
    numbering: Numbering<'_>,
    step: &wgpu::Buffer,
) {
    let bindings = [
        uniform.as_entire_binding(),
        batch.indices.clone(),
        batch.offsets.clone(),
        numbering.features.as_entire_binding(),
        numbering.tables.as_entire_binding(),
        step.as_entire_binding(),
    ];
    call.dispatch(&KERNEL, &bindings, &Groups::Direct(1));
}
