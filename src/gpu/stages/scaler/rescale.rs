//! Host side of `shaders/scaler/rescale.wgsl`: the decision of a loss scaler.

use crate::{
    gpu::engine::call::{Call, Groups},
    wgsl::{
        Access::{ReadWrite, Uniform},
        Kernel,
    },
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "rescale",
    workgroup: 1,
    bindings: &[(Uniform, "rule"), (ReadWrite, "greatest"), (ReadWrite, "state")],
};

pub(crate) fn record(call: &mut Call<'_>, rule: &wgpu::Buffer, greatest: &wgpu::Buffer, state: &wgpu::Buffer) {
    let bindings = [rule.as_entire_binding(), greatest.as_entire_binding(), state.as_entire_binding()];
    call.dispatch(&KERNEL, &bindings, &Groups::Direct(1));
}
