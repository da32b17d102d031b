//! Host side of `shaders/histogram.wgsl`: digit counts of each block of keys.

use super::call::{Call, Groups};
use crate::shader::{
    Access::{Read, ReadWrite, Uniform},
    Kernel,
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "histogram",
    workgroup: 256,
    bindings: &[(Uniform, "pass_info"), (ReadWrite, "step"), (Read, "keys"), (ReadWrite, "digits")],
};

/// Keys of a workgroup: `SORT_BLOCK` in `shaders/shared/sort.wgsl`.
pub(crate) const BLOCK: u32 = 2048;

pub(crate) fn record(
    call: &mut Call<'_>,
    pass: &wgpu::Buffer,
    step: &wgpu::Buffer,
    keys: &wgpu::Buffer,
    digits: &wgpu::Buffer,
    blocks: u32,
) {
    let bindings =
        [pass.as_entire_binding(), step.as_entire_binding(), keys.as_entire_binding(), digits.as_entire_binding()];
    call.dispatch(&KERNEL, &bindings, &Groups::Direct(u64::from(blocks)));
}
