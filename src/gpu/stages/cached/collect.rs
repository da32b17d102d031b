//! Host side of `shaders/cached/collect.wgsl`: the dirty slots.

use crate::{
    gpu::{
        engine::call::{Call, Groups},
        stages::cached::{space::FlushSpace, tables::Tables},
    },
    wgsl::{
        Access::{Read, ReadWrite, Uniform},
        Kernel,
    },
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "collect",
    workgroup: 256,
    bindings: &[(Uniform, "params"), (ReadWrite, "step"), (Read, "ways"), (ReadWrite, "moves"), (ReadWrite, "tables")],
};

pub(crate) fn record(call: &mut Call<'_>, uniform: &wgpu::Buffer, tables: &Tables, space: &FlushSpace) {
    let bindings = [
        uniform.as_entire_binding(),
        space.step.as_entire_binding(),
        tables.ways.as_entire_binding(),
        space.moves.as_entire_binding(),
        tables.tables.as_entire_binding(),
    ];
    call.dispatch(&KERNEL, &bindings, &Groups::of(tables.layout.slots(), 256));
}
