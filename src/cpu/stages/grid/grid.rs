//! CPU mirror of `shaders/grid/grid.wgsl`: batches of weighted indices from points; an invocation writes a bag.

use rayon::prelude::*;

use crate::table::abi::{Grid, Level, NONE};

const PI: [u32; 3] = [1, 2_654_435_761, 805_459_861];

/// Writes a batch of weighted indices from points: for each level and point a bag with the corners of the point's cell. Mirror of
/// `shaders/grid/grid.wgsl`.
pub fn grid(grid: &Grid, levels: &[Level], coordinates: &[f32], indices: &mut [u32], weights: &mut [f32]) {
    let (dims, corners, points) = (grid.dims as usize, 1 << grid.dims, grid.points as usize);
    let n = points * grid.levels as usize * corners;
    // Parts of a thousand bags.
    let parts = indices[..n].par_chunks_mut(corners << 10).zip(weights[..n].par_chunks_mut(corners << 10));
    parts.enumerate().for_each(|(part, (indices, weights))| {
        let bags = indices.chunks_exact_mut(corners).zip(weights.chunks_exact_mut(corners));
        for (bag, (indices, weights)) in (part << 10..).zip(bags) {
            let (level, point) = (&levels[bag / points], &coordinates[bag % points * dims..][..dims]);
            if point.iter().any(|x| !x.is_finite()) {
                indices.fill(NONE);
                weights.fill(0.0);
                continue;
            }
            let (cell, part) = cell_of(grid, level, point);
            for (c, (index, weight)) in (0..).zip(indices.iter_mut().zip(weights)) {
                (*index, *weight) = (corner_row(level, cell, c), corner_weight(grid, part, c, 3));
            }
        }
    });
}

/// The cell of a point on a level, and the point's place within it.
pub(crate) fn cell_of(grid: &Grid, level: &Level, point: &[f32]) -> ([u32; 3], [f32; 3]) {
    let (mut cell, mut part) = ([0; 3], [0.0; 3]);
    for (axis, &x) in point.iter().enumerate() {
        let held = if grid.wrap == 1 { x - x.floor() } else { x.clamp(0.0, 1.0) };
        let place = held * level.scale + 0.5;
        (cell[axis], part[axis]) = (place as u32, place - place.floor());
    }
    (cell, part)
}

/// The row of corner `c` of a cell; bit k of `c`: the further corner along axis k. A dense level has no corner beyond its sides; the last one
/// stands for it.
fn corner_row(level: &Level, cell: [u32; 3], c: u32) -> u32 {
    let at = [0, 1, 2].map(|axis| cell[axis] + (c >> axis & 1));
    if level.hashed == 1 {
        return [0, 1, 2].map(|axis| at[axis].wrapping_mul(PI[axis])).iter().fold(0, |hash, x| hash ^ x)
            & (level.rows - 1);
    }
    let [x, y, z] = at.map(|at| at.min(level.side - 1));
    x + level.side * (y + level.side * z)
}

/// The weight of corner `c` without the factor of axis `but` (3: with all factors).
pub(crate) fn corner_weight(grid: &Grid, part: [f32; 3], c: u32, but: usize) -> f32 {
    let share = |axis: usize| if c >> axis & 1 == 1 { part[axis] } else { 1.0 - part[axis] };
    (0..grid.dims as usize).filter(|&axis| axis != but).map(share).product()
}
