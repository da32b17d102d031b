//! Host side of `shaders/grid/grid.wgsl`: batches of weighted indices from points; an invocation writes a bag.

use crate::{
    gpu::engine::call::{Call, Groups, kernel},
    table::layout::Grid,
};

kernel! {
    "grid", workgroup 256,
    grid: Uniform,
    levels: Read,
    coordinates: Read,
    indices: ReadWrite,
    weights: ReadWrite,
}

pub(crate) fn record(
    call: &mut Call<'_>,
    grid: &Grid,
    levels: &wgpu::Buffer,
    coordinates: wgpu::BindingResource<'_>,
    [indices, weights]: [&wgpu::Buffer; 2],
) {
    let uniform = call.context.uniform(grid);
    let bindings = Bindings {
        grid: uniform.as_entire_binding(),
        levels: levels.as_entire_binding(),
        coordinates,
        indices: indices.as_entire_binding(),
        weights: weights.as_entire_binding(),
    };
    call.dispatch(bindings, &Groups::of(grid.points * grid.levels, 256));
}
