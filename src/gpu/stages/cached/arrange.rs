//! Host side of `shaders/cached/arrange.wgsl`: from a dedup of the accesses to what backward reads.

use crate::{
    gpu::engine::call::{Call, Groups},
    wgsl::{
        Access::{Read, ReadWrite, Uniform},
        Kernel,
    },
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

/// What a dedup has sorted, and where it goes.
pub(crate) struct Arranged<'a> {
    pub(crate) step: &'a wgpu::Buffer,
    pub(crate) order: &'a wgpu::Buffer,
    pub(crate) segment: &'a wgpu::Buffer,
    pub(crate) keys: &'a wgpu::Buffer,
    pub(crate) places: &'a wgpu::Buffer,
    pub(crate) access: &'a wgpu::Buffer,
    pub(crate) accesses: &'a wgpu::Buffer,
    pub(crate) targets: &'a wgpu::Buffer,
}

pub(crate) fn record(call: &mut Call<'_>, all: &Arranged<'_>, scaler: &wgpu::Buffer, most: u32) {
    let bindings = [
        all.step.as_entire_binding(),
        all.order.as_entire_binding(),
        all.segment.as_entire_binding(),
        all.keys.as_entire_binding(),
        all.places.as_entire_binding(),
        all.access.as_entire_binding(),
        all.accesses.as_entire_binding(),
        all.targets.as_entire_binding(),
        scaler.as_entire_binding(),
    ];
    call.dispatch(&KERNEL, &bindings, &Groups::of(most, 256));
}
