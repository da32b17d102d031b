//! Host side of `shaders/cached/update.wgsl`: the distinct rows, shard by shard.

use crate::{
    gpu::{
        engine::call::{Call, Groups},
        stages::cached::{exchange::Records, space::Space, tables::Tables},
    },
    wgsl::{
        Access::{Read, ReadWrite, Uniform},
        Kernel,
    },
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "update",
    workgroup: 256,
    bindings: &[
        (Uniform, "params"),
        (Uniform, "shard"),
        (Read, "targets"),
        (Read, "accesses"),
        (Read, "grad_outputs"),
        (ReadWrite, "records"),
        (ReadWrite, "cache"),
        (ReadWrite, "scratch"),
        (ReadWrite, "ways"),
        (ReadWrite, "tables"),
    ],
};

pub(crate) fn record(
    call: &mut Call<'_>,
    uniform: &wgpu::Buffer,
    tables: &Tables,
    space: &Space,
    rows: u32,
    grad_outputs: &wgpu::BindingResource<'_>,
    records: Records<'_>,
) {
    let layout = &tables.layout;
    let mut over = |shard: &wgpu::Buffer, records: &wgpu::Buffer| {
        let bindings = [
            uniform.as_entire_binding(),
            shard.as_entire_binding(),
            space.targets.as_entire_binding(),
            space.accesses.as_entire_binding(),
            grad_outputs.clone(),
            records.as_entire_binding(),
            tables.cache.as_entire_binding(),
            space.scratch.as_entire_binding(),
            tables.ways.as_entire_binding(),
            tables.tables.as_entire_binding(),
        ];
        call.dispatch_rows(&KERNEL, tables, &bindings, &Groups::capped(rows, layout.at_once()));
    };
    match records {
        Records::Flight { flight, shard } => over(shard, flight),
        _ => tables.packs.iter().zip(&tables.records).for_each(|(shard, records)| over(shard, records)),
    }
}
