//! Host side of `shaders/probe.wgsl`: 8 distinct rows a workgroup.

use super::{
    call::{Call, Groups},
    sort::Sorted,
    space::Space,
    tables::Tables,
};
use crate::shader::{
    Access::{Read, ReadWrite, Uniform},
    Kernel,
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "probe",
    workgroup: 256,
    bindings: &[
        (Uniform, "params"),
        (ReadWrite, "step"),
        (Read, "keys"),
        (Read, "starts"),
        (ReadWrite, "unique"),
        (ReadWrite, "rows"),
        (ReadWrite, "set_keys"),
        (ReadWrite, "ways"),
        (ReadWrite, "tables"),
    ],
};

pub(crate) fn record(
    call: &mut Call<'_>,
    uniform: &wgpu::Buffer,
    tables: &Tables,
    space: &Space,
    sorted: &Sorted<'_>,
    rows: u32,
) {
    let bindings = [
        uniform.as_entire_binding(),
        space.step.as_entire_binding(),
        sorted.keys.as_entire_binding(),
        space.starts.as_entire_binding(),
        space.unique.as_entire_binding(),
        space.rows.as_entire_binding(),
        space.set_keys.as_entire_binding(),
        tables.ways.as_entire_binding(),
        tables.tables.as_entire_binding(),
    ];
    call.dispatch(&KERNEL, &bindings, &Groups::of(rows, 8));
}
