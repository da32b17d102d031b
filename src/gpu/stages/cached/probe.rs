//! Host side of `shaders/cached/probe.wgsl`: finds the slot of each access, and lists the misses.

use crate::gpu::{
    engine::call::{Call, Groups, kernel},
    stages::cached::{space::Space, tables::Tables},
};

kernel! {
    "probe", workgroup 256,
    params: Uniform,
    step: ReadWrite,
    keys: Read,
    ways: Read,
    places: ReadWrite,
    miss_keys: ReadWrite,
    miss_index: ReadWrite,
    tables: ReadWrite,
}

pub(crate) fn record(call: &mut Call<'_>, uniform: &wgpu::Buffer, tables: &Tables, space: &Space, indices: u32) {
    let bindings = Bindings {
        params: uniform.as_entire_binding(),
        step: space.step.as_entire_binding(),
        keys: space.keys.as_entire_binding(),
        ways: tables.ways.as_entire_binding(),
        places: space.places.as_entire_binding(),
        miss_keys: space.miss_keys.as_entire_binding(),
        miss_index: space.miss_index.as_entire_binding(),
        tables: tables.tables.as_entire_binding(),
    };
    call.dispatch(bindings, &Groups::of(indices, 256));
}
