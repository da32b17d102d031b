//! Host side of `shaders/cached/linearize.wgsl`: turns indices into linear rows, and checks indices and offsets.

use crate::{
    gpu::{
        engine::call::{Call, Groups, kernel},
        stages::cached::{space::Bound, tables::Numbering},
    },
    table::layout::Params,
};

kernel! {
    "linearize", workgroup 256,
    params: Uniform,
    indices: Read,
    offsets: Read,
    features: Read,
    tables: ReadWrite,
    step: ReadWrite,
    keys: ReadWrite,
    access: ReadWrite,
}

/// The lists of a step that the stage writes.
pub(crate) struct Lists<'a> {
    pub(crate) step: &'a wgpu::Buffer,
    pub(crate) keys: &'a wgpu::Buffer,
    pub(crate) access: &'a wgpu::Buffer,
}

pub(crate) fn record(
    call: &mut Call<'_>,
    params: &Params,
    uniform: &wgpu::Buffer,
    batch: &Bound<'_>,
    numbering: Numbering<'_>,
    Lists { step, keys, access }: Lists<'_>,
) {
    let bindings = Bindings {
        params: uniform.as_entire_binding(),
        indices: batch.indices.clone(),
        offsets: batch.offsets.clone(),
        features: numbering.features.as_entire_binding(),
        tables: numbering.tables.as_entire_binding(),
        step: step.as_entire_binding(),
        keys: keys.as_entire_binding(),
        access: access.as_entire_binding(),
    };
    // One invocation for each index, and one for each offset.
    call.dispatch(bindings, &Groups::of(params.indices.max(params.bags + 1), 256));
}
