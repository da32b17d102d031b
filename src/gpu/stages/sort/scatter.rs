//! Host side of `shaders/sort/scatter.wgsl`: keys and values to their places.

use crate::{
    gpu::{
        engine::call::{Call, Groups},
        stages::sort::space::{BLOCK, Pairs, SortScratch, Source},
    },
    wgsl::{
        Access::{Read, ReadWrite, Uniform},
        Kernel,
    },
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "scatter",
    workgroup: 256,
    bindings: &[
        (Uniform, "pass_info"),
        (ReadWrite, "step"),
        (Read, "keys_in"),
        (Read, "values_in"),
        (Read, "digits"),
        (Read, "totals"),
        (ReadWrite, "keys_out"),
        (ReadWrite, "values_out"),
    ],
};

pub(crate) fn record(
    call: &mut Call<'_>,
    pass: &wgpu::Buffer,
    step: &wgpu::Buffer,
    from: &Source<'_>,
    scratch: &SortScratch,
    to: &Pairs<'_>,
    capacity: u32,
) {
    let bindings = [
        pass.as_entire_binding(),
        step.as_entire_binding(),
        from.keys.clone(),
        from.values.clone(),
        scratch.digits.as_entire_binding(),
        scratch.totals.as_entire_binding(),
        to.keys.as_entire_binding(),
        to.values.as_entire_binding(),
    ];
    let groups = Groups::capped(capacity, BLOCK);
    call.dispatch(&KERNEL, &bindings, &groups);
}
