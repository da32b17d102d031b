//! Host side of `shaders/combine.wgsl`: a workgroup a tile, for the heavy row that begins there.

use super::{
    call::{Call, Groups},
    merge::CHUNK,
    space::Space,
    tables::Tables,
};
use crate::shader::{
    Access::{Read, ReadWrite, Uniform},
    Kernel,
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "combine",
    workgroup: 256,
    bindings: &[(Uniform, "params"), (Read, "targets"), (Read, "segment"), (ReadWrite, "scratch")],
};

pub(crate) fn record(call: &mut Call<'_>, uniform: &wgpu::Buffer, tables: &Tables, space: &Space, indices: u32) {
    let bindings = [
        uniform.as_entire_binding(),
        space.targets.as_entire_binding(),
        space.segment.as_entire_binding(),
        space.scratch.as_entire_binding(),
    ];
    call.dispatch_rows(&KERNEL, tables, &bindings, &Groups::capped(indices.div_ceil(CHUNK), 1));
}
