//! Host side of `shaders/robe/robe_keys.wgsl`: every chunk of a batch.

use crate::{
    gpu::{
        engine::call::{Call, Groups},
        stages::robe::space::{Chunks, Space, Uniforms},
    },
    wgsl::{
        Access::{Read, ReadWrite, Uniform},
        Kernel,
    },
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "robe_keys",
    workgroup: 256,
    bindings: &[
        (Uniform, "params"),
        (Uniform, "robe"),
        (ReadWrite, "step"),
        (Read, "hashes"),
        (Read, "access"),
        (ReadWrite, "chunk_keys"),
        (ReadWrite, "chunk_access"),
    ],
};

pub(crate) fn record(call: &mut Call<'_>, uniforms: &Uniforms, space: &Space, (chunks, count): (&Chunks, u32)) {
    let bindings = [
        uniforms.params.as_entire_binding(),
        uniforms.robe.as_entire_binding(),
        space.step.as_entire_binding(),
        space.hashes.as_entire_binding(),
        space.access.as_entire_binding(),
        chunks.keys.as_entire_binding(),
        chunks.access.as_entire_binding(),
    ];
    call.dispatch(&KERNEL, &bindings, &Groups::of(count, 256));
}
