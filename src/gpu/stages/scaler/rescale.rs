//! Host side of `shaders/scaler/rescale.wgsl`: the decision of a loss scaler.

use crate::gpu::engine::call::{Call, Groups, kernel};

kernel! {
    "rescale", workgroup 1,
    rule: Uniform,
    greatest: ReadWrite,
    state: ReadWrite,
}

pub(crate) fn record(call: &mut Call<'_>, rule: &wgpu::Buffer, greatest: &wgpu::Buffer, state: &wgpu::Buffer) {
    let bindings = Bindings {
        rule: rule.as_entire_binding(),
        greatest: greatest.as_entire_binding(),
        state: state.as_entire_binding(),
    };
    call.dispatch(bindings, &Groups::Direct(1));
}
