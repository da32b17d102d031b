//! CPU mirror of `shaders/grid/grid_gradient.wgsl`: gradients of coordinates from gradients of the corners' weights; an invocation has a point.

use rayon::prelude::*;

use crate::{
    cpu::stages::grid::grid::{cell_of, corner_weight},
    table::abi::{Grid, Level},
};

/// The gradient of the loss with respect to the coordinates of points. A coordinate outside [0, 1] that is clamped has gradient 0, and so has a
/// point with a coordinate that is not finite. Mirror of `shaders/grid/grid_gradient.wgsl`.
pub fn grid_gradient(
    grid: &Grid,
    levels: &[Level],
    coordinates: &[f32],
    grad_weights: &[f32],
    grad_coordinates: &mut [f32],
) {
    let (dims, corners, points) = (grid.dims as usize, 1usize << grid.dims, grid.points as usize);
    grad_coordinates[..points * dims].par_chunks_mut(dims).with_min_len(256).enumerate().for_each(|(i, to)| {
        let point = &coordinates[i * dims..][..dims];
        to.fill(0.0);
        if point.iter().any(|x| !x.is_finite()) {
            return;
        }
        for (l, level) in levels.iter().enumerate() {
            let (_, part) = cell_of(grid, level, point);
            let slopes = &grad_weights[(l * points + i) * corners..][..corners];
            for (c, &slope) in (0..).zip(slopes) {
                for (axis, sum) in to.iter_mut().enumerate() {
                    let toward = if c >> axis & 1 == 1 { level.scale } else { -level.scale };
                    *sum += slope * toward * corner_weight(grid, part, c, axis);
                }
            }
        }
        for (sum, x) in to.iter_mut().zip(point) {
            if grid.wrap == 0 && !(0.0..=1.0).contains(x) {
                *sum = 0.0;
            }
        }
    });
}
