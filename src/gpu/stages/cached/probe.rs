//! Host side of `shaders/cached/probe.wgsl`: the slot of each access, and the list of those that miss.

use crate::{
    gpu::{
        engine::call::{Call, Groups},
        stages::cached::{space::Space, tables::Tables},
    },
    wgsl::{
        Access::{Read, ReadWrite, Uniform},
        Kernel,
    },
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "probe",
    workgroup: 256,
    bindings: &[
        (Uniform, "params"),
        (ReadWrite, "step"),
        (Read, "keys"),
        (Read, "ways"),
        (ReadWrite, "places"),
        (ReadWrite, "miss_keys"),
        (ReadWrite, "miss_index"),
        (ReadWrite, "tables"),
    ],
};

pub(crate) fn record(call: &mut Call<'_>, uniform: &wgpu::Buffer, tables: &Tables, space: &Space, indices: u32) {
    let bindings = [
        uniform.as_entire_binding(),
        space.step.as_entire_binding(),
        space.keys.as_entire_binding(),
        tables.ways.as_entire_binding(),
        space.places.as_entire_binding(),
        space.miss_keys.as_entire_binding(),
        space.miss_index.as_entire_binding(),
        tables.tables.as_entire_binding(),
    ];
    call.dispatch(&KERNEL, &bindings, &Groups::of(indices, 256));
}
