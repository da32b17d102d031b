//! Host side of `shaders/cached/assign.wgsl`: writes the caller's values to rows.

use crate::gpu::{
    engine::{
        bind_cache::passing,
        call::{Call, Groups, kernel},
    },
    stages::cached::{space::Space, tables::Tables},
};

kernel! {
    "assign", workgroup 256,
    params: Uniform,
    keys: Read,
    places: Read,
    values: Read,
    cache: ReadWrite,
    scratch: ReadWrite,
    ways: ReadWrite,
    moves: ReadWrite,
    tables: ReadWrite,
}

pub(crate) fn record(
    call: &mut Call<'_>,
    uniform: &wgpu::Buffer,
    tables: &Tables,
    space: &Space,
    values: &wgpu::Buffer,
    rows: u32,
) {
    let bindings = Bindings {
        params: uniform.as_entire_binding(),
        keys: space.keys.as_entire_binding(),
        places: space.places.as_entire_binding(),
        values: passing(values),
        cache: tables.cache.as_entire_binding(),
        scratch: space.scratch.as_entire_binding(),
        ways: tables.ways.as_entire_binding(),
        moves: space.moves.as_entire_binding(),
        tables: tables.tables.as_entire_binding(),
    };
    let layout = &tables.layout;
    call.dispatch_rows(bindings, tables, &Groups::of(rows, layout.at_once()));
}
