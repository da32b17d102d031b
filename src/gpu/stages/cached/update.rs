//! Host side of `shaders/cached/update.wgsl`: updates the distinct rows, shard by shard.

use crate::gpu::{
    engine::call::{Call, Groups, kernel},
    stages::cached::{exchange::Records, space::Space, tables::Tables},
};

kernel! {
    "update", workgroup 256,
    params: Uniform,
    shard: Uniform,
    targets: Read,
    accesses: Read,
    grad_outputs: Read,
    records: ReadWrite,
    cache: ReadWrite,
    scratch: ReadWrite,
    ways: ReadWrite,
    tables: ReadWrite,
    rate: Uniform,
}

pub(crate) fn record(
    call: &mut Call<'_>,
    (uniform, rate): (&wgpu::Buffer, &wgpu::Buffer),
    tables: &Tables,
    space: &Space,
    rows: u32,
    grad_outputs: &wgpu::BindingResource<'_>,
    records: Records<'_>,
) {
    let mut over = |shard: &wgpu::Buffer, records: &wgpu::Buffer| {
        let bindings = Bindings {
            params: uniform.as_entire_binding(),
            shard: shard.as_entire_binding(),
            targets: space.targets.as_entire_binding(),
            accesses: space.accesses.as_entire_binding(),
            grad_outputs: grad_outputs.clone(),
            records: records.as_entire_binding(),
            cache: tables.cache.as_entire_binding(),
            scratch: space.scratch.as_entire_binding(),
            ways: tables.ways.as_entire_binding(),
            tables: tables.tables.as_entire_binding(),
            rate: rate.as_entire_binding(),
        };
        call.dispatch_rows(bindings, tables, &Groups::Wide(u64::from(rows.div_ceil(tables.block()))));
    };
    match records {
        Records::Flight { flight, shard } => over(shard, flight),
        _ => tables.packs.iter().zip(&tables.records).for_each(|(shard, records)| over(shard, records)),
    }
}
