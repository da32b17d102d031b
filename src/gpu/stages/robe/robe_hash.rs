//! Host side of `shaders/robe/robe_hash.wgsl`: hashes the row of each access.

use crate::gpu::{
    engine::call::{Call, Groups, kernel},
    stages::robe::{
        array::Array,
        space::{Space, Uniforms},
    },
};

kernel! {
    "robe_hash", workgroup 256,
    params: Uniform,
    robe: Uniform,
    step: ReadWrite,
    keys: Read,
    hashes: ReadWrite,
    tables: ReadWrite,
}

pub(crate) fn record(call: &mut Call<'_>, uniforms: &Uniforms, array: &Array, space: &Space, indices: u32) {
    let bindings = Bindings {
        params: uniforms.params.as_entire_binding(),
        robe: uniforms.robe.as_entire_binding(),
        step: space.step.as_entire_binding(),
        keys: space.keys.as_entire_binding(),
        hashes: space.hashes.as_entire_binding(),
        tables: array.tables.as_entire_binding(),
    };
    call.dispatch(bindings, &Groups::of(indices, 256));
}
