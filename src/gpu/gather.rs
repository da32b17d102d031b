//! Host side of `shaders/gather.wgsl`: a workgroup an output row.

use super::{
    call::{Call, Groups},
    space::{Bound, Space},
    tables::Tables,
};
use crate::shader::{
    Access::{Read, ReadWrite, Uniform},
    Kernel,
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "gather",
    workgroup: 64,
    bindings: &[
        (Uniform, "params"),
        (Read, "offsets"),
        (Read, "places"),
        (Read, "weights"),
        (Read, "cache"),
        (Read, "scratch"),
        (ReadWrite, "access"),
        (ReadWrite, "outputs"),
    ],
};

pub(crate) fn record(
    call: &mut Call<'_>,
    uniform: &wgpu::Buffer,
    batch: &Bound<'_>,
    tables: &Tables,
    space: &Space,
    outputs: &wgpu::BindingResource<'_>,
    rows: u32,
) {
    let bindings = [
        uniform.as_entire_binding(),
        batch.offsets.clone(),
        space.places.as_entire_binding(),
        batch.weights.clone(),
        tables.cache.as_entire_binding(),
        space.scratch.as_entire_binding(),
        space.access.as_entire_binding(),
        outputs.clone(),
    ];
    call.dispatch(&KERNEL, &bindings, &Groups::Direct(u64::from(rows)));
}
