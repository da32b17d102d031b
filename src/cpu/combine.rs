use super::{merge::TILE, spread::each_row};
use crate::layout::{Params, Step, count};

/// Adds up the partial sums of a row that lies in several tiles. Mirror of `shaders/combine.wgsl`.
pub fn combine(params: &Params, step: &Step, starts: &[u32], partials: &[f32], grads: &mut [f32]) {
    let dim = params.dim as usize;
    let unique = step.counts[count::UNIQUE] as usize;
    let floats = step.counts[count::VALID] as usize / TILE * dim;
    each_row(&mut grads[..unique * dim], dim, floats, |u, sums| {
        let end = if u + 1 < unique { starts[u + 1] } else { step.counts[count::VALID] } as usize;
        let first_tile = starts[u] as usize / TILE;
        let last_tile = (end - 1) / TILE;
        if first_tile == last_tile {
            return;
        }
        sums.copy_from_slice(&partials[(2 * first_tile + 1) * dim..][..dim]);
        for tile in first_tile + 1..=last_tile {
            let part = &partials[2 * tile * dim..][..dim];
            sums.iter_mut().zip(part).for_each(|(sum, x)| *sum += x);
        }
    });
}
