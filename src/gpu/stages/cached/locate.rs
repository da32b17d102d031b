//! Host side of `shaders/cached/locate.wgsl`: where the missed accesses find their rows.

use crate::{
    gpu::{
        engine::call::{Call, Groups},
        stages::{
            cached::{space::Space, tables::Tables},
            sort::space::Sorted,
        },
    },
    wgsl::{
        Access::{Read, ReadWrite, Uniform},
        Kernel,
    },
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "locate",
    workgroup: 256,
    bindings: &[
        (Uniform, "params"),
        (ReadWrite, "step"),
        (Read, "keys"),
        (Read, "order"),
        (Read, "segment"),
        (Read, "unique"),
        (Read, "ways"),
        (ReadWrite, "places"),
    ],
};

pub(crate) fn record(
    call: &mut Call<'_>,
    uniform: &wgpu::Buffer,
    tables: &Tables,
    space: &Space,
    missed: &Sorted<'_>,
    indices: u32,
) {
    let bindings = [
        uniform.as_entire_binding(),
        space.step.as_entire_binding(),
        space.keys.as_entire_binding(),
        missed.values.as_entire_binding(),
        space.segment.as_entire_binding(),
        space.unique.as_entire_binding(),
        tables.ways.as_entire_binding(),
        space.places.as_entire_binding(),
    ];
    call.dispatch(&KERNEL, &bindings, &Groups::capped(indices, 256));
}
