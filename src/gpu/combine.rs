//! Host side of `shaders/combine.wgsl`.

use super::{
    call::{Call, Groups},
    space::Space,
};
use crate::shader::{
    Access::{Read, ReadWrite, Uniform},
    Kernel,
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "combine",
    workgroup: 64,
    bindings: &[(Uniform, "params"), (ReadWrite, "step"), (Read, "starts"), (Read, "partials"), (ReadWrite, "grads")],
};

pub(crate) fn record(call: &mut Call<'_>, uniform: &wgpu::Buffer, space: &Space, rows: u32) {
    let bindings = [
        uniform.as_entire_binding(),
        space.step.as_entire_binding(),
        space.starts.as_entire_binding(),
        space.partials.as_entire_binding(),
        space.grads.as_entire_binding(),
    ];
    call.dispatch(&KERNEL, &bindings, &Groups::Direct(u64::from(rows)));
}
