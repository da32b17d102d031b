//! Host side of `shaders/sort/heads.wgsl`: counts the distinct keys that begin in each block.

use crate::gpu::engine::call::{Call, Groups, kernel};

kernel! {
    "heads", workgroup 256,
    info: Uniform,
    step: ReadWrite,
    keys: Read,
    heads: ReadWrite,
}

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
    let bindings = Bindings {
        info: info.as_entire_binding(),
        step: step.as_entire_binding(),
        keys: keys.as_entire_binding(),
        heads: heads.as_entire_binding(),
    };
    let groups = Groups::capped(capacity, BLOCK);
    call.dispatch(bindings, &groups);
}
