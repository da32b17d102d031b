//! Host side of `shaders/cached/touch.wgsl`: stamps and frequencies of the rows that were hit.

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
    name: "touch",
    workgroup: 256,
    bindings: &[
        (Uniform, "params"),
        (Uniform, "shard"),
        (ReadWrite, "step"),
        (Read, "keys"),
        (Read, "places"),
        (ReadWrite, "ways"),
        (ReadWrite, "freqs"),
        (ReadWrite, "tables"),
    ],
};

pub(crate) fn record(call: &mut Call<'_>, uniform: &wgpu::Buffer, tables: &Tables, space: &Space, indices: u32) {
    for freqs in &tables.freqs {
        let bindings = [
            uniform.as_entire_binding(),
            freqs.shard.as_entire_binding(),
            space.step.as_entire_binding(),
            space.keys.as_entire_binding(),
            space.places.as_entire_binding(),
            tables.ways.as_entire_binding(),
            freqs.counters.as_entire_binding(),
            tables.tables.as_entire_binding(),
        ];
        call.dispatch(&KERNEL, &bindings, &Groups::of(indices, 256));
    }
}
