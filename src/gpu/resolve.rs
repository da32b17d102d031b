//! Host side of `shaders/resolve.wgsl`.

use super::{
    call::{Call, Groups},
    space::Space,
    tables::Tables,
};
use crate::shader::{
    Access::{Read, ReadWrite, Uniform},
    Kernel,
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "resolve",
    workgroup: 256,
    bindings: &[
        (Uniform, "params"),
        (ReadWrite, "step"),
        (ReadWrite, "unique"),
        (Read, "set_keys"),
        (Read, "ways"),
        (ReadWrite, "fetch_to"),
    ],
};

pub(crate) fn record(call: &mut Call<'_>, uniform: &wgpu::Buffer, tables: &Tables, space: &Space, rows: u32) {
    let bindings = [
        uniform.as_entire_binding(),
        space.step.as_entire_binding(),
        space.unique.as_entire_binding(),
        space.set_keys.as_entire_binding(),
        tables.ways.as_entire_binding(),
        space.fetch_to.as_entire_binding(),
    ];
    call.dispatch(&KERNEL, &bindings, &Groups::of(rows, 256));
}
