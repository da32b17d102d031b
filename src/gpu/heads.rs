//! Host side of `shaders/heads.wgsl`: where a new key begins.

use super::call::{Call, Groups};
use crate::shader::{
    Access::{Read, ReadWrite, Uniform},
    Kernel,
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "heads",
    workgroup: 256,
    bindings: &[(Uniform, "info"), (ReadWrite, "step"), (Read, "keys"), (ReadWrite, "heads")],
};

pub(crate) fn record(
    call: &mut Call<'_>,
    info: &wgpu::Buffer,
    step: &wgpu::Buffer,
    keys: &wgpu::Buffer,
    heads: &wgpu::Buffer,
    capacity: u32,
) {
    let bindings =
        [info.as_entire_binding(), step.as_entire_binding(), keys.as_entire_binding(), heads.as_entire_binding()];
    call.dispatch(&KERNEL, &bindings, &Groups::of(capacity, 256));
}
