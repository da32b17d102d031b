//! Host side of `shaders/grid/grid_gradient.wgsl`: gradients of coordinates from those of the corners' weights; an invocation has a point.

use crate::{
    gpu::engine::call::{Call, Groups, kernel},
    table::layout::Grid,
};

kernel! {
    "grid_gradient", workgroup 256,
    grid: Uniform,
    levels: Read,
    coordinates: Read,
    grad_weights: Read,
    grad_coordinates: ReadWrite,
}

pub(crate) fn record(
    call: &mut Call<'_>,
    grid: &Grid,
    levels: &wgpu::Buffer,
    [coordinates, grad_weights, grad_coordinates]: [wgpu::BindingResource<'_>; 3],
) {
    let uniform = call.context.uniform(grid);
    let bindings = Bindings {
        grid: uniform.as_entire_binding(),
        levels: levels.as_entire_binding(),
        coordinates,
        grad_weights,
        grad_coordinates,
    };
    call.dispatch(bindings, &Groups::of(grid.points, 256));
}
