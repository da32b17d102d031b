//! Host side of `shaders/cached/assign.wgsl`: the caller's values.

use crate::{
    gpu::{
        engine::{
            bind_cache::passing,
            call::{Call, Groups},
        },
        stages::cached::{space::Space, tables::Tables},
    },
    wgsl::{
        Access::{Read, ReadWrite, Uniform},
        Kernel,
    },
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "assign",
    workgroup: 256,
    bindings: &[
        (Uniform, "params"),
        (Read, "keys"),
        (Read, "places"),
        (Read, "values"),
        (ReadWrite, "cache"),
        (ReadWrite, "scratch"),
        (ReadWrite, "ways"),
        (ReadWrite, "moves"),
        (ReadWrite, "tables"),
    ],
};

pub(crate) fn record(
    call: &mut Call<'_>,
    uniform: &wgpu::Buffer,
    tables: &Tables,
    space: &Space,
    values: &wgpu::Buffer,
    rows: u32,
) {
    let bindings = [
        uniform.as_entire_binding(),
        space.keys.as_entire_binding(),
        space.places.as_entire_binding(),
        passing(values),
        tables.cache.as_entire_binding(),
        space.scratch.as_entire_binding(),
        tables.ways.as_entire_binding(),
        space.moves.as_entire_binding(),
        tables.tables.as_entire_binding(),
    ];
    let layout = &tables.layout;
    call.dispatch_rows(&KERNEL, tables, &bindings, &Groups::of(rows, layout.at_once()));
}
