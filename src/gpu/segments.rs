//! Host side of `shaders/segments.wgsl`: runs of equal keys.

use super::call::{Call, Groups};
use crate::shader::{
    Access::{Read, ReadWrite, Uniform},
    Kernel,
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "segments",
    workgroup: 256,
    bindings: &[(Uniform, "info"), (ReadWrite, "step"), (Read, "keys"), (ReadWrite, "segment"), (ReadWrite, "starts")],
};

pub(crate) fn record(
    call: &mut Call<'_>,
    info: &wgpu::Buffer,
    step: &wgpu::Buffer,
    keys: &wgpu::Buffer,
    segment: &wgpu::Buffer,
    starts: &wgpu::Buffer,
    capacity: u32,
) {
    let bindings = [
        info.as_entire_binding(),
        step.as_entire_binding(),
        keys.as_entire_binding(),
        segment.as_entire_binding(),
        starts.as_entire_binding(),
    ];
    call.dispatch(&KERNEL, &bindings, &Groups::of(capacity, 256));
}
