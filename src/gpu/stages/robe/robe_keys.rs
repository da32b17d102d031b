//! Host side of `shaders/robe/robe_keys.wgsl`: lists every chunk of a batch.

use crate::gpu::{
    engine::call::{Call, Groups, kernel},
    stages::robe::space::{Chunks, Space, Uniforms},
};

kernel! {
    "robe_keys", workgroup 256,
    params: Uniform,
    robe: Uniform,
    step: ReadWrite,
    hashes: Read,
    access: Read,
    chunk_keys: ReadWrite,
    chunk_access: ReadWrite,
}

pub(crate) fn record(call: &mut Call<'_>, uniforms: &Uniforms, space: &Space, (chunks, count): (&Chunks, u32)) {
    let bindings = Bindings {
        params: uniforms.params.as_entire_binding(),
        robe: uniforms.robe.as_entire_binding(),
        step: space.step.as_entire_binding(),
        hashes: space.hashes.as_entire_binding(),
        access: space.access.as_entire_binding(),
        chunk_keys: chunks.keys.as_entire_binding(),
        chunk_access: chunks.access.as_entire_binding(),
    };
    call.dispatch(bindings, &Groups::of(count, 256));
}
