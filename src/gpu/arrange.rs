//! Host side of `shaders/arrange.wgsl`: from a dedup of the accesses to what backward reads.

use super::{
    call::{Call, Groups},
    space::Space,
};
use crate::shader::{
    Access::{Read, ReadWrite, Uniform},
    Kernel,
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "arrange",
    workgroup: 256,
    bindings: &[
        (ReadWrite, "step"),
        (Read, "order"),
        (Read, "segment"),
        (Read, "keys"),
        (Read, "places"),
        (Read, "access"),
        (ReadWrite, "accesses"),
        (ReadWrite, "targets"),
        (Uniform, "scaler"),
    ],
};

pub(crate) fn record(call: &mut Call<'_>, space: &Space, order: &wgpu::Buffer, scaler: &wgpu::Buffer, indices: u32) {
    let bindings = [
        space.step.as_entire_binding(),
        order.as_entire_binding(),
        space.segment.as_entire_binding(),
        space.keys.as_entire_binding(),
        space.places.as_entire_binding(),
        space.access.as_entire_binding(),
        space.accesses.as_entire_binding(),
        space.targets.as_entire_binding(),
        scaler.as_entire_binding(),
    ];
    call.dispatch(&KERNEL, &bindings, &Groups::of(indices, 256));
}
