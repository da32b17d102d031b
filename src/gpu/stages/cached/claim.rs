//! Host side of `shaders/cached/claim.wgsl`: the distinct missing rows.

use crate::{
    gpu::{
        engine::call::{Call, Groups},
        stages::{
            cached::{space::Space, tables::Tables},
            sort::space::Sorted,
        },
    },
    wgsl::{
        Access::{Read, ReadWrite, Uniform},
        Kernel,
    },
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "claim",
    workgroup: 256,
    bindings: &[
        (Uniform, "params"),
        (Uniform, "shard"),
        (ReadWrite, "step"),
        (Read, "keys"),
        (Read, "order"),
        (Read, "starts"),
        (ReadWrite, "unique"),
        (ReadWrite, "moves"),
        (ReadWrite, "freqs"),
        (ReadWrite, "tables"),
    ],
};

pub(crate) fn record(
    call: &mut Call<'_>,
    uniform: &wgpu::Buffer,
    tables: &Tables,
    space: &Space,
    missed: &Sorted<'_>,
    rows: u32,
) {
    for freqs in &tables.freqs {
        let bindings = [
            uniform.as_entire_binding(),
            freqs.shard.as_entire_binding(),
            space.step.as_entire_binding(),
            space.keys.as_entire_binding(),
            missed.values.as_entire_binding(),
            space.starts.as_entire_binding(),
            space.unique.as_entire_binding(),
            space.moves.as_entire_binding(),
            freqs.counters.as_entire_binding(),
            tables.tables.as_entire_binding(),
        ];
        call.dispatch(&KERNEL, &bindings, &Groups::capped(rows, 256));
    }
}
