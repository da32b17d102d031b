//! Host side of `shaders/locate.wgsl`.

use super::{
    call::{Call, Groups},
    sort::Sorted,
    space::Space,
};
use crate::shader::{
    Access::{Read, ReadWrite, Uniform},
    Kernel,
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
        (ReadWrite, "places"),
    ],
};

pub(crate) fn record(call: &mut Call<'_>, uniform: &wgpu::Buffer, space: &Space, sorted: &Sorted<'_>, indices: u32) {
    let bindings = [
        uniform.as_entire_binding(),
        space.step.as_entire_binding(),
        sorted.keys.as_entire_binding(),
        sorted.values.as_entire_binding(),
        space.segment.as_entire_binding(),
        space.unique.as_entire_binding(),
        space.places.as_entire_binding(),
    ];
    call.dispatch(&KERNEL, &bindings, &Groups::of(indices, 256));
}
