//! Host side of `shaders/sort/histogram.wgsl`: counts the digits of each block of keys.

use crate::gpu::{
    engine::call::{Call, Groups, kernel},
    stages::sort::space::BLOCK,
};

kernel! {
    "histogram", workgroup 256,
    pass_info: Uniform,
    step: ReadWrite,
    keys: Read,
    digits: ReadWrite,
}

pub(crate) fn record(
    call: &mut Call<'_>,
    pass: &wgpu::Buffer,
    step: &wgpu::Buffer,
    keys: &wgpu::BindingResource<'_>,
    digits: &wgpu::Buffer,
    capacity: u32,
) {
    let bindings = Bindings {
        pass_info: pass.as_entire_binding(),
        step: step.as_entire_binding(),
        keys: keys.clone(),
        digits: digits.as_entire_binding(),
    };
    let groups = Groups::capped(capacity, BLOCK);
    call.dispatch(bindings, &groups);
}
