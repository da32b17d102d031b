//! Host side of `shaders/cached/admit.wgsl`: admits missing rows, set by set.

use crate::gpu::{
    engine::call::{Call, Groups, kernel},
    stages::cached::{space::Space, tables::Tables},
};

kernel! {
    "admit", workgroup 256,
    params: Uniform,
    step: ReadWrite,
    unique: ReadWrite,
    moves: ReadWrite,
    ways: ReadWrite,
    tables: ReadWrite,
}

pub(crate) fn record(call: &mut Call<'_>, uniform: &wgpu::Buffer, tables: &Tables, space: &Space, rows: u32) {
    let bindings = Bindings {
        params: uniform.as_entire_binding(),
        step: space.step.as_entire_binding(),
        unique: space.unique.as_entire_binding(),
        moves: space.moves.as_entire_binding(),
        ways: tables.ways.as_entire_binding(),
        tables: tables.tables.as_entire_binding(),
    };
    call.dispatch(bindings, &Groups::capped(rows, 256));
}
