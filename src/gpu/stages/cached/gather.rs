//! Host side of `shaders/cached/gather.wgsl`: pools bags; a workgroup writes several output rows.

use crate::{
    gpu::{
        engine::call::{Call, Groups, kernel},
        stages::cached::{
            space::{Bound, Space},
            tables::Tables,
        },
    },
    table::layout::{POOL_NONE, Params},
};

kernel! {
    "gather", workgroup 256,
    params: Uniform,
    offsets: Read,
    places: Read,
    weights: Read,
    cache: Read,
    scratch: Read,
    access: ReadWrite,
    outputs: ReadWrite,
}

pub(crate) fn record(
    call: &mut Call<'_>,
    params: &Params,
    uniform: &wgpu::Buffer,
    batch: &Bound<'_>,
    tables: &Tables,
    space: &Space,
    (outputs, rows): (&wgpu::BindingResource<'_>, u32),
) {
    let bindings = Bindings {
        params: uniform.as_entire_binding(),
        offsets: batch.offsets.clone(),
        places: space.places.as_entire_binding(),
        weights: batch.weights.clone(),
        cache: tables.cache.as_entire_binding(),
        scratch: space.scratch.as_entire_binding(),
        access: space.access.as_entire_binding(),
        outputs: outputs.clone(),
    };
    let layout = &tables.layout;
    // With pooling none each share of a workgroup takes four rows.
    let per_group = layout.at_once() * if params.pooling == POOL_NONE { 4 } else { 1 };
    call.dispatch_rows(bindings, tables, &Groups::of(rows, per_group));
}
