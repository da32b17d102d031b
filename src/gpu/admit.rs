//! Host side of `shaders/admit.wgsl`: a workgroup for each set that misses a row.

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
    name: "admit",
    workgroup: 32,
    bindings: &[
        (Uniform, "params"),
        (ReadWrite, "step"),
        (ReadWrite, "unique"),
        (Read, "order"),
        (Read, "starts"),
        (ReadWrite, "ways"),
        (ReadWrite, "victim_rows"),
        (ReadWrite, "victim_slots"),
        (ReadWrite, "tables"),
    ],
};

pub(crate) fn record(
    call: &mut Call<'_>,
    uniform: &wgpu::Buffer,
    tables: &Tables,
    space: &Space,
    sets: &Sorted<'_>,
    rows: u32,
) {
    let bindings = [
        uniform.as_entire_binding(),
        space.step.as_entire_binding(),
        space.unique.as_entire_binding(),
        sets.values.as_entire_binding(),
        space.set_starts.as_entire_binding(),
        tables.ways.as_entire_binding(),
        space.victim_rows.as_entire_binding(),
        space.victim_slots.as_entire_binding(),
        tables.tables.as_entire_binding(),
    ];
    call.dispatch(&KERNEL, &bindings, &Groups::Direct(u64::from(rows.min(tables.layout.sets))));
}
