//! Host side of `shaders/cached/collect.wgsl`: lists the dirty slots.

use crate::gpu::{
    engine::call::{Call, Groups, kernel},
    stages::cached::{space::FlushSpace, tables::Tables},
};

kernel! {
    "collect", workgroup 256,
    params: Uniform,
    step: ReadWrite,
    ways: Read,
    moves: ReadWrite,
    tables: ReadWrite,
}

pub(crate) fn record(call: &mut Call<'_>, uniform: &wgpu::Buffer, tables: &Tables, space: &FlushSpace) {
    let bindings = Bindings {
        params: uniform.as_entire_binding(),
        step: space.step.as_entire_binding(),
        ways: tables.ways.as_entire_binding(),
        moves: space.moves.as_entire_binding(),
        tables: tables.tables.as_entire_binding(),
    };
    call.dispatch(bindings, &Groups::of(tables.layout.slots(), 256));
}
