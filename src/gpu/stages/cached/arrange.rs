//! Host side of `shaders/cached/arrange.wgsl`: turns a dedup of the accesses into the lists that backward reads.

use crate::gpu::engine::call::{Call, Groups, kernel};

kernel! {
    "arrange", workgroup 256,
    step: ReadWrite,
    order: Read,
    segment: Read,
    keys: Read,
    places: Read,
    access: Read,
    accesses: ReadWrite,
    targets: ReadWrite,
    scaler: Uniform,
}

/// The result of a dedup, and the lists that arrange writes.
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
    let bindings = Bindings {
        step: all.step.as_entire_binding(),
        order: all.order.as_entire_binding(),
        segment: all.segment.as_entire_binding(),
        keys: all.keys.as_entire_binding(),
        places: all.places.as_entire_binding(),
        access: all.access.as_entire_binding(),
        accesses: all.accesses.as_entire_binding(),
        targets: all.targets.as_entire_binding(),
        scaler: scaler.as_entire_binding(),
    };
    call.dispatch(bindings, &Groups::of(most, 256));
}
