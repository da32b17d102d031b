//! Host side of `shaders/cached/claim.wgsl`: lists the distinct missing rows.

use crate::gpu::{
    engine::call::{Call, Groups, kernel},
    stages::{
        cached::{space::Space, tables::Tables},
        sort::space::Sorted,
    },
};

kernel! {
    "claim", workgroup 256,
    params: Uniform,
    shard: Uniform,
    step: ReadWrite,
    keys: Read,
    order: Read,
    starts: Read,
    unique: ReadWrite,
    moves: ReadWrite,
    freqs: ReadWrite,
    tables: ReadWrite,
}

pub(crate) fn record(
    call: &mut Call<'_>,
    uniform: &wgpu::Buffer,
    tables: &Tables,
    space: &Space,
    missed: &Sorted<'_>,
    rows: u32,
) {
    for freqs in &tables.freqs {
        let bindings = Bindings {
            params: uniform.as_entire_binding(),
            shard: freqs.shard.as_entire_binding(),
            step: space.step.as_entire_binding(),
            keys: space.keys.as_entire_binding(),
            order: missed.values.as_entire_binding(),
            starts: space.starts.as_entire_binding(),
            unique: space.unique.as_entire_binding(),
            moves: space.moves.as_entire_binding(),
            freqs: freqs.counters.as_entire_binding(),
            tables: tables.tables.as_entire_binding(),
        };
        call.dispatch(bindings, &Groups::capped(rows, 256));
    }
}
