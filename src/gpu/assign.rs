//! Host side of `shaders/assign.wgsl`: a workgroup a row.

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
    name: "assign",
    workgroup: 64,
    bindings: &[
        (Uniform, "params"),
        (ReadWrite, "step"),
        (Read, "unique"),
        (Read, "values"),
        (ReadWrite, "cache"),
        (ReadWrite, "scratch"),
        (ReadWrite, "ways"),
        (ReadWrite, "sources"),
        (ReadWrite, "tables"),
    ],
};

pub(crate) fn record(
    call: &mut Call<'_>,
    uniform: &wgpu::Buffer,
    tables: &Tables,
    space: &Space,
    values: &wgpu::Buffer,
    rows: u32,
) {
    let bindings = [
        uniform.as_entire_binding(),
        space.step.as_entire_binding(),
        space.unique.as_entire_binding(),
        values.as_entire_binding(),
        tables.cache.as_entire_binding(),
        space.scratch.as_entire_binding(),
        tables.ways.as_entire_binding(),
        space.sources.as_entire_binding(),
        tables.tables.as_entire_binding(),
    ];
    call.dispatch(&KERNEL, &bindings, &Groups::Direct(u64::from(rows)));
}
