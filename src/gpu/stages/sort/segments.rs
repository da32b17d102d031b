//! Host side of `shaders/sort/segments.wgsl`: runs of equal keys.

use crate::{
    gpu::{
        engine::call::{Call, Groups},
        stages::sort::{
            heads::BLOCK,
            space::{DedupTo, SortScratch},
        },
    },
    wgsl::{
        Access::{Read, ReadWrite, Uniform},
        Kernel,
    },
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "segments",
    workgroup: 256,
    bindings: &[
        (Uniform, "info"),
        (ReadWrite, "step"),
        (Read, "keys"),
        (Read, "heads"),
        (Read, "totals"),
        (ReadWrite, "segment"),
        (ReadWrite, "starts"),
    ],
};

pub(crate) fn record(
    call: &mut Call<'_>,
    info: &wgpu::Buffer,
    step: &wgpu::Buffer,
    keys: &wgpu::Buffer,
    scratch: &SortScratch,
    to: &DedupTo<'_>,
    capacity: u32,
) {
    let bindings = [
        info.as_entire_binding(),
        step.as_entire_binding(),
        keys.as_entire_binding(),
        scratch.digits.as_entire_binding(),
        scratch.totals.as_entire_binding(),
        to.segment.as_entire_binding(),
        to.starts.as_entire_binding(),
    ];
    let groups = Groups::capped(capacity, BLOCK);
    call.dispatch(&KERNEL, &bindings, &groups);
}
