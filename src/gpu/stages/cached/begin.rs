//! Host side of `shaders/cached/begin.wgsl`: decides whether the step takes place.

use crate::gpu::{
    engine::call::{Call, Groups, kernel},
    stages::cached::{space::Bound, tables::Numbering},
};

kernel! {
    "begin", workgroup 1,
    params: Uniform,
    indices: Read,
    offsets: Read,
    features: Read,
    tables: ReadWrite,
    step: ReadWrite,
}

pub(crate) fn record(
    call: &mut Call<'_>,
    uniform: &wgpu::Buffer,
    batch: &Bound<'_>,
    numbering: Numbering<'_>,
    step: &wgpu::Buffer,
) {
    let bindings = Bindings {
        params: uniform.as_entire_binding(),
        indices: batch.indices.clone(),
        offsets: batch.offsets.clone(),
        features: numbering.features.as_entire_binding(),
        tables: numbering.tables.as_entire_binding(),
        step: step.as_entire_binding(),
    };
    call.dispatch(bindings, &Groups::Direct(1));
}
