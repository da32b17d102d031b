//! Host side of `shaders/scatter.wgsl`: keys and values to their places.

use super::{
    call::{Call, Groups},
    sort::Pairs,
};
use crate::shader::{
    Access::{Read, ReadWrite, Uniform},
    Kernel,
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
        (ReadWrite, "keys_out"),
        (ReadWrite, "values_out"),
    ],
};

pub(crate) fn record(
    call: &mut Call<'_>,
    pass: &wgpu::Buffer,
    step: &wgpu::Buffer,
    from: &Pairs<'_>,
    digits: &wgpu::Buffer,
    to: &Pairs<'_>,
    blocks: u32,
) {
    let bindings = [
        pass.as_entire_binding(),
        step.as_entire_binding(),
        from.keys.as_entire_binding(),
        from.values.as_entire_binding(),
        digits.as_entire_binding(),
        to.keys.as_entire_binding(),
        to.values.as_entire_binding(),
    ];
    call.dispatch(&KERNEL, &bindings, &Groups::Direct(u64::from(blocks)));
}
