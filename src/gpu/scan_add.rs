//! Host side of `shaders/scan_add.wgsl`: the block sums, added back.

use super::call::{Call, Groups};
use crate::shader::{
    Access::{Read, ReadWrite, Uniform},
    Kernel,
};

pub(crate) const KERNEL: Kernel =
    Kernel { name: "scan_add", workgroup: 256, bindings: &[(Uniform, "info"), (ReadWrite, "data"), (Read, "sums")] };

pub(crate) fn record(call: &mut Call<'_>, info: &wgpu::Buffer, data: &wgpu::Buffer, sums: &wgpu::Buffer, blocks: u32) {
    let bindings = [info.as_entire_binding(), data.as_entire_binding(), sums.as_entire_binding()];
    call.dispatch(&KERNEL, &bindings, &Groups::Direct(u64::from(blocks)));
}
