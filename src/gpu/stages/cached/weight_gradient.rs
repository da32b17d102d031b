//! Host side of `shaders/cached/weight_gradient.wgsl`: the gradient of each index's weight; a workgroup has several indices.

use crate::{
    gpu::{
        engine::{
            bind::WeightGradient,
            call::{Call, Groups, kernel},
        },
        stages::cached::{space::Space, tables::Tables},
    },
    table::layout::Params,
};

kernel! {
    "weight_gradient", workgroup 256,
    params: Uniform,
    offsets: Read,
    access: Read,
    places: Read,
    cache: Read,
    scratch: Read,
    grad_outputs: Read,
    grad_weights: ReadWrite,
}

pub(crate) fn record(call: &mut Call<'_>, params: &Params, tables: &Tables, space: &Space, bound: &WeightGradient<'_>) {
    let uniform = call.context.uniform(params);
    let bindings = Bindings {
        params: uniform.as_entire_binding(),
        offsets: bound.offsets.clone(),
        access: space.access.as_entire_binding(),
        places: space.places.as_entire_binding(),
        cache: tables.cache.as_entire_binding(),
        scratch: space.scratch.as_entire_binding(),
        grad_outputs: bound.grad_outputs.clone(),
        grad_weights: bound.grad_weights.clone(),
    };
    call.dispatch_rows(bindings, tables, &Groups::of(params.indices, tables.layout.at_once()));
}
