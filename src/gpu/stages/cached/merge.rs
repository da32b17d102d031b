//! Host side of `shaders/cached/merge.wgsl`: sums the chunks of heavy rows.

use crate::{
    gpu::{
        engine::call::{Call, Groups, kernel},
        stages::cached::{space::Space, tables::Tables},
    },
    table::layout::MERGE_CHUNK,
};

kernel! {
    "merge", workgroup 256,
    params: Uniform,
    targets: Read,
    segment: Read,
    accesses: Read,
    grad_outputs: Read,
    scratch: ReadWrite,
}

pub(crate) fn record(
    call: &mut Call<'_>,
    uniform: &wgpu::Buffer,
    tables: &Tables,
    space: &Space,
    indices: u32,
    grad_outputs: &wgpu::BindingResource<'_>,
) {
    let bindings = Bindings {
        params: uniform.as_entire_binding(),
        targets: space.targets.as_entire_binding(),
        segment: space.segment.as_entire_binding(),
        accesses: space.accesses.as_entire_binding(),
        grad_outputs: grad_outputs.clone(),
        scratch: space.scratch.as_entire_binding(),
    };
    let layout = &tables.layout;
    let groups = Groups::capped(2 * indices.div_ceil(MERGE_CHUNK), layout.at_once());
    call.dispatch_rows(bindings, tables, &groups);
}
