//! Host side of `shaders/robe/robe_hash.wgsl`: the hash of each access's row.

use crate::{
    gpu::{
        engine::call::{Call, Groups},
        stages::robe::{
            array::Array,
            space::{Space, Uniforms},
        },
    },
    wgsl::{
        Access::{Read, ReadWrite, Uniform},
        Kernel,
    },
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "robe_hash",
    workgroup: 256,
    bindings: &[(Uniform, "params"), (ReadWrite, "step"), (Read, "keys"), (ReadWrite, "hashes"), (ReadWrite, "tables")],
};

pub(crate) fn record(call: &mut Call<'_>, uniforms: &Uniforms, array: &Array, space: &Space, indices: u32) {
    let bindings = [
        uniforms.params.as_entire_binding(),
        space.step.as_entire_binding(),
        space.keys.as_entire_binding(),
        space.hashes.as_entire_binding(),
        array.tables.as_entire_binding(),
    ];
    call.dispatch(&KERNEL, &bindings, &Groups::of(indices, 256));
}
