//! Host side of `shaders/cached/send.wgsl`: lists rows for another rank.

use crate::{
    gpu::{
        engine::{
            bind_cache::passing,
            call::{Call, Groups, kernel},
        },
        stages::cached::{
            space::Space,
            tables::{RecordBuffers, Tables},
        },
    },
    table::layout::Shard,
};

kernel! {
    "send", workgroup 256,
    params: Uniform,
    shard: Uniform,
    keys: Read,
    places: Read,
    records: Read,
    cache: Read,
    scratch: Read,
    ways: Read,
    sent: ReadWrite,
}

/// `space` has the rows and their places. A staged table has no records on the device: `none` is bound in their place.
pub(crate) fn record(
    call: &mut Call<'_>,
    uniform: &wgpu::Buffer,
    tables: &Tables,
    space: &Space,
    none: &wgpu::Buffer,
    sent: &wgpu::Buffer,
    rows: u32,
) {
    let (context, layout) = (call.context, &tables.layout);
    let mut over = |shard: &Shard, records: RecordBuffers<'_>| {
        let shard = context.uniform(shard);
        let bindings = Bindings {
            params: uniform.as_entire_binding(),
            shard: shard.as_entire_binding(),
            keys: space.keys.as_entire_binding(),
            places: space.places.as_entire_binding(),
            records: records.as_entire_binding(),
            cache: tables.cache.as_entire_binding(),
            scratch: space.scratch.as_entire_binding(),
            ways: tables.ways.as_entire_binding(),
            sent: passing(sent),
        };
        call.dispatch_records(bindings, tables, records, &Groups::of(rows, layout.at_once()));
    };
    if tables.records.is_empty() {
        return over(&Shard { rows_each: 1, ..Shard::default() }, RecordBuffers::Flight(none));
    }
    for shards in tables.bound(context.caps()) {
        over(&shards.uniform(layout, 0), RecordBuffers::Shards(shards));
    }
}
