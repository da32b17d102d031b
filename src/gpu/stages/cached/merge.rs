//! Host side of `shaders/cached/merge.wgsl`: the chunks of heavy rows.

use crate::{
    gpu::{
        engine::call::{Call, Groups},
        stages::cached::{space::Space, tables::Tables},
    },
    table::layout::MERGE_CHUNK,
    wgsl::{
        Access::{Read, ReadWrite, Uniform},
        Kernel,
    },
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "merge",
    workgroup: 256,
    bindings: &[
        (Uniform, "params"),
        (Read, "targets"),
        (Read, "segment"),
        (Read, "accesses"),
        (Read, "grad_outputs"),
        (ReadWrite, "scratch"),
    ],
};

pub(crate) fn record(
    call: &mut Call<'_>,
    uniform: &wgpu::Buffer,
    tables: &Tables,
    space: &Space,
    indices: u32,
    grad_outputs: &wgpu::BindingResource<'_>,
) {
    let bindings = [
        uniform.as_entire_binding(),
        space.targets.as_entire_binding(),
        space.segment.as_entire_binding(),
        space.accesses.as_entire_binding(),
        grad_outputs.clone(),
        space.scratch.as_entire_binding(),
    ];
    let layout = &tables.layout;
    let groups = Groups::capped(2 * indices.div_ceil(MERGE_CHUNK), layout.at_once());
    call.dispatch_rows(&KERNEL, tables, &bindings, &groups);
}
