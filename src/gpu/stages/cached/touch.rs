//! Host side of `shaders/cached/touch.wgsl`: updates the stamps of hit rows and the frequencies of all rows.

use crate::gpu::{
    engine::call::{Call, Groups, kernel},
    stages::cached::{space::Space, tables::Tables},
};

kernel! {
    "touch", workgroup 256,
    params: Uniform,
    shard: Uniform,
    step: ReadWrite,
    keys: Read,
    places: Read,
    ways: ReadWrite,
    freqs: ReadWrite,
    tables: ReadWrite,
}

pub(crate) fn record(call: &mut Call<'_>, uniform: &wgpu::Buffer, tables: &Tables, space: &Space, indices: u32) {
    for freqs in &tables.freqs {
        let bindings = Bindings {
            params: uniform.as_entire_binding(),
            shard: freqs.shard.as_entire_binding(),
            step: space.step.as_entire_binding(),
            keys: space.keys.as_entire_binding(),
            places: space.places.as_entire_binding(),
            ways: tables.ways.as_entire_binding(),
            freqs: freqs.counters.as_entire_binding(),
            tables: tables.tables.as_entire_binding(),
        };
        call.dispatch(bindings, &Groups::of(indices, 256));
    }
}
