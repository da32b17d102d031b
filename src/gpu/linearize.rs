//! Host side of `shaders/linearize.wgsl`: indices and offsets to linear rows.

use super::{
    call::{Call, Groups},
    space::{Bound, Space},
    tables::Tables,
};
use crate::layout::Params;
use crate::shader::{
    Access::{Read, ReadWrite, Uniform},
    Kernel,
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "linearize",
    workgroup: 256,
    bindings: &[
        (Uniform, "params"),
        (Read, "indices"),
        (Read, "offsets"),
        (Read, "features"),
        (ReadWrite, "tables"),
        (ReadWrite, "step"),
        (ReadWrite, "keys"),
        (ReadWrite, "access"),
    ],
};

pub(crate) fn record(
    call: &mut Call<'_>,
    params: &Params,
    uniform: &wgpu::Buffer,
    batch: &Bound<'_>,
    tables: &Tables,
    space: &Space,
) {
    let bindings = [
        uniform.as_entire_binding(),
        batch.indices.clone(),
        batch.offsets.clone(),
        tables.features.as_entire_binding(),
        tables.tables.as_entire_binding(),
        space.step.as_entire_binding(),
        space.keys.as_entire_binding(),
        space.access.as_entire_binding(),
    ];
    // One invocation an index, and one an offset.
    call.dispatch(&KERNEL, &bindings, &Groups::of(params.indices.max(params.bags + 1), 256));
}
