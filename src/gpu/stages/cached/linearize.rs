//! Host side of `shaders/cached/linearize.wgsl`: indices and offsets to linear rows.

use crate::{
    gpu::{
        engine::call::{Call, Groups},
        stages::cached::{space::Bound, tables::Numbering},
    },
    table::layout::Params,
    wgsl::{
        Access::{Read, ReadWrite, Uniform},
        Kernel,
    },
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "linearize",
    workgroup: 256,
    bindings: &[
        (Uniform, "params"),
        (Read, "indices"),
        (Read, "offsets"),
        (Read, "features"),
        (ReadWrite, "tables"),
        (ReadWrite, "step"),
        (ReadWrite, "keys"),
        (ReadWrite, "access"),
    ],
};

pub(crate) fn record(
    call: &mut Call<'_>,
    params: &Params,
    uniform: &wgpu::Buffer,
    batch: &Bound<'_>,
    numbering: Numbering<'_>,
    [step, keys, access]: [&wgpu::Buffer; 3],
) {
    let bindings = [
        uniform.as_entire_binding(),
        batch.indices.clone(),
        batch.offsets.clone(),
        numbering.features.as_entire_binding(),
        numbering.tables.as_entire_binding(),
        step.as_entire_binding(),
        keys.as_entire_binding(),
        access.as_entire_binding(),
    ];
    // One invocation an index, and one an offset.
    call.dispatch(&KERNEL, &bindings, &Groups::of(params.indices.max(params.bags + 1), 256));
}
