//! Host side of `shaders/sort/heads.wgsl`: how many keys begin in each block.

use crate::{
    gpu::engine::call::{Call, Groups},
    wgsl::{
        Access::{Read, ReadWrite, Uniform},
        Kernel,
    },
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "heads",
    workgroup: 256,
    bindings: &[(Uniform, "info"), (ReadWrite, "step"), (Read, "keys"), (ReadWrite, "heads")],
};

/// Sorted keys of a block: `DEDUP_BLOCK` in `shaders/shared/dedup.wgsl`.
pub(crate) const BLOCK: u32 = 2048;

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
    let groups = Groups::capped(capacity, BLOCK);
    call.dispatch(&KERNEL, &bindings, &groups);
}
