//! Host side of `shaders/begin.wgsl`: whether the step takes place.

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
    name: "begin",
    workgroup: 1,
    bindings: &[
        (Uniform, "params"),
        (Read, "indices"),
        (Read, "offsets"),
        (Read, "features"),
        (ReadWrite, "tables"),
        (ReadWrite, "step"),
    ],
};

pub(crate) fn record(call: &mut Call<'_>, uniform: &wgpu::Buffer, batch: &Bound<'_>, tables: &Tables, space: &Space) {
    let bindings = [
        uniform.as_entire_binding(),
        batch.indices.clone(),
        batch.offsets.clone(),
        tables.features.as_entire_binding(),
        tables.tables.as_entire_binding(),
        space.step.as_entire_binding(),
    ];
    call.dispatch(&KERNEL, &bindings, &Groups::Direct(1));
}
