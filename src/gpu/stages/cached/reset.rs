//! Host side of `shaders/cached/reset.wgsl`: empties the cache.

use crate::gpu::{
    engine::call::{Call, Groups, kernel},
    stages::cached::tables::Tables,
};

kernel! {
    "reset", workgroup 256,
    params: Uniform,
    ways: ReadWrite,
}

pub(crate) fn record(call: &mut Call<'_>, uniform: &wgpu::Buffer, tables: &Tables) {
    let bindings = Bindings { params: uniform.as_entire_binding(), ways: tables.ways.as_entire_binding() };
    call.dispatch(bindings, &Groups::of(tables.layout.slots(), 256));
}
