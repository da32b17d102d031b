//! Host side of `shaders/cached/locate.wgsl`: finds the places of the missed accesses' rows.

use crate::gpu::{
    engine::call::{Call, Groups, kernel},
    stages::{
        cached::{space::Space, tables::Tables},
        sort::space::Sorted,
    },
};

kernel! {
    "locate", workgroup 256,
    params: Uniform,
    step: ReadWrite,
    keys: Read,
    order: Read,
    segment: Read,
    unique: Read,
    ways: Read,
    places: ReadWrite,
}

pub(crate) fn record(
    call: &mut Call<'_>,
    uniform: &wgpu::Buffer,
    tables: &Tables,
    space: &Space,
    missed: &Sorted<'_>,
    indices: u32,
) {
    let bindings = Bindings {
        params: uniform.as_entire_binding(),
        step: space.step.as_entire_binding(),
        keys: space.keys.as_entire_binding(),
        order: missed.values.as_entire_binding(),
        segment: space.segment.as_entire_binding(),
        unique: space.unique.as_entire_binding(),
        ways: tables.ways.as_entire_binding(),
        places: space.places.as_entire_binding(),
    };
    call.dispatch(bindings, &Groups::capped(indices, 256));
}
