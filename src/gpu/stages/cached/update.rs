//! Host side of `shaders/cached/update.wgsl`: updates the distinct rows, as many shards at a time as the device binds.

use crate::{
    gpu::{
        engine::call::{Call, Groups, Named},
        stages::{
            UPDATE,
            cached::{
                exchange::Records,
                tables::{RecordBuffers, Tables},
            },
        },
    },
    table::abi::Shard,
};

pub(crate) fn record(call: &mut Call<'_>, from: &[&dyn Named], tables: &Tables, rows: u32, records: Records<'_>) {
    let context = call.context;
    let mut over = |shard: &wgpu::Buffer, records: RecordBuffers<'_>| {
        let groups = Groups::Wide(u64::from(rows.div_ceil(records.block(&tables.layout))));
        call.run_records(&UPDATE, &[&("shard", shard), &from], tables, records, &groups);
    };
    if let Records::Flight { flight, shard } = records {
        return over(shard, RecordBuffers::Flight(flight));
    }
    for shards in tables.bound(context.caps()) {
        over(&context.uniform(&shards.uniform(&tables.layout, Shard::PACK)), RecordBuffers::Shards(shards));
    }
}
