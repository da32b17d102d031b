//! Host side of `shaders/cached/reset.wgsl`: an empty cache.

use crate::{
    gpu::{
        engine::call::{Call, Groups},
        stages::cached::tables::Tables,
    },
    wgsl::{
        Access::{ReadWrite, Uniform},
        Kernel,
    },
};

pub(crate) const KERNEL: Kernel =
    Kernel { name: "reset", workgroup: 256, bindings: &[(Uniform, "params"), (ReadWrite, "ways")] };

pub(crate) fn record(call: &mut Call<'_>, uniform: &wgpu::Buffer, tables: &Tables) {
    let bindings = [uniform.as_entire_binding(), tables.ways.as_entire_binding()];
    call.dispatch(&KERNEL, &bindings, &Groups::of(tables.layout.slots(), 256));
}
