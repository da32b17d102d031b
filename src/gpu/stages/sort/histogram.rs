//! Host side of `shaders/sort/histogram.wgsl`: digit counts of each block of keys.

use crate::{
    gpu::{
        engine::call::{Call, Groups},
        stages::sort::space::BLOCK,
    },
    wgsl::{
        Access::{Read, ReadWrite, Uniform},
        Kernel,
    },
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "histogram",
    workgroup: 256,
    bindings: &[(Uniform, "pass_info"), (ReadWrite, "step"), (Read, "keys"), (ReadWrite, "digits")],
};

pub(crate) fn record(
    call: &mut Call<'_>,
    pass: &wgpu::Buffer,
    step: &wgpu::Buffer,
    keys: &wgpu::BindingResource<'_>,
    digits: &wgpu::Buffer,
    capacity: u32,
) {
    let bindings = [pass.as_entire_binding(), step.as_entire_binding(), keys.clone(), digits.as_entire_binding()];
    let groups = Groups::capped(capacity, BLOCK);
    call.dispatch(&KERNEL, &bindings, &groups);
}
