//! Host side of `shaders/cached/update.wgsl`: updates the distinct rows, as many shards at a time as the device binds.

use crate::{
    gpu::{
        engine::call::{Call, Groups, kernel},
        stages::cached::{
            exchange::Records,
            space::Space,
            tables::{RecordBuffers, Tables},
        },
    },
    table::layout::Shard,
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
    let context = call.context;
    let mut over = |shard: &wgpu::Buffer, records: RecordBuffers<'_>| {
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
        let groups = Groups::Wide(u64::from(rows.div_ceil(records.block(&tables.layout))));
        call.dispatch_records(bindings, tables, records, &groups);
    };
    if let Records::Flight { flight, shard } = records {
        return over(shard, RecordBuffers::Flight(flight));
    }
    for shards in tables.bound(context.caps()) {
        over(&context.uniform(&shards.uniform(&tables.layout, Shard::PACK)), RecordBuffers::Shards(shards));
    }
}
