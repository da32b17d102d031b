//! Host side of `shaders/cached/gather.wgsl`: some output rows a workgroup.

use crate::{
    gpu::{
        engine::call::{Call, Groups},
        stages::cached::{
            space::{Bound, Space},
            tables::Tables,
        },
    },
    table::layout::{POOL_NONE, Params},
    wgsl::{
        Access::{Read, ReadWrite, Uniform},
        Kernel,
    },
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "gather",
    workgroup: 256,
    bindings: &[
        (Uniform, "params"),
        (Read, "offsets"),
        (Read, "places"),
        (Read, "weights"),
        (Read, "cache"),
        (Read, "scratch"),
        (ReadWrite, "access"),
        (ReadWrite, "outputs"),
    ],
};

pub(crate) fn record(
    call: &mut Call<'_>,
    params: &Params,
    uniform: &wgpu::Buffer,
    batch: &Bound<'_>,
    tables: &Tables,
    space: &Space,
    (outputs, rows): (&wgpu::BindingResource<'_>, u32),
) {
    let bindings = [
        uniform.as_entire_binding(),
        batch.offsets.clone(),
        space.places.as_entire_binding(),
        batch.weights.clone(),
        tables.cache.as_entire_binding(),
        space.scratch.as_entire_binding(),
        space.access.as_entire_binding(),
        outputs.clone(),
    ];
    let layout = &tables.layout;
    // With pooling none each takes four rows.
    let per_group = layout.at_once() * if params.pooling == POOL_NONE { 4 } else { 1 };
    call.dispatch_rows(&KERNEL, tables, &bindings, &Groups::of(rows, per_group));
}
