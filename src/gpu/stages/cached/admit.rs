//! Host side of `shaders/cached/admit.wgsl`: the sets that miss a row.

use crate::{
    gpu::{
        engine::call::{Call, Groups},
        stages::cached::{space::Space, tables::Tables},
    },
    wgsl::{
        Access::{ReadWrite, Uniform},
        Kernel,
    },
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "admit",
    workgroup: 256,
    bindings: &[
        (Uniform, "params"),
        (ReadWrite, "step"),
        (ReadWrite, "unique"),
        (ReadWrite, "moves"),
        (ReadWrite, "ways"),
        (ReadWrite, "tables"),
    ],
};

pub(crate) fn record(call: &mut Call<'_>, uniform: &wgpu::Buffer, tables: &Tables, space: &Space, rows: u32) {
    let bindings = [
        uniform.as_entire_binding(),
        space.step.as_entire_binding(),
        space.unique.as_entire_binding(),
        space.moves.as_entire_binding(),
        tables.ways.as_entire_binding(),
        tables.tables.as_entire_binding(),
    ];
    call.dispatch(&KERNEL, &bindings, &Groups::capped(rows, 256));
}
