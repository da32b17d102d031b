use super::spread::PAYS;
use crate::layout::{Params, Step, count};

/// Sorted accesses of a tile.
pub(super) const TILE: usize = 32;

/// Sums the gradients of each distinct row over tiles of sorted accesses. Mirror of `shaders/merge.wgsl`.
pub fn merge(
    params: &Params,
    step: &Step,
    order: &[u32],
    segment: &[u32],
    access: &[[u32; 2]],
    grad_outputs: &[f32],
    grads: &mut [f32],
    partials: &mut [f32],
) {
    let valid = step.counts[count::VALID] as usize;
    let tiles = Tiles { dim: params.dim as usize, order, segment: &segment[..valid], access, grad_outputs };
    tiles.spread(0..valid.div_ceil(TILE), 0, grads, partials);
}

struct Tiles<'a> {
    dim: usize,
    order: &'a [u32],
    segment: &'a [u32],
    access: &'a [[u32; 2]],
    grad_outputs: &'a [f32],
}

impl Tiles<'_> {
    /// `grads` begins at row `base`, `partials` at the first of `tiles`. A row is written by the one tile it lies in, and rows
    /// ascend with the tiles, so both arrays split where the tiles do.
    fn spread(&self, tiles: std::ops::Range<usize>, base: usize, grads: &mut [f32], partials: &mut [f32]) {
        if tiles.len() < 2 || tiles.len() * TILE * self.dim < PAYS {
            for (tile, partials) in tiles.zip(partials.chunks_exact_mut(2 * self.dim)) {
                self.tile(tile, base, grads, partials);
            }
            return;
        }
        let middle = tiles.start + tiles.len() / 2;
        let row = self.segment[middle * TILE] as usize;
        let (grads, high_grads) = grads.split_at_mut((row - base) * self.dim);
        let (partials, high_partials) = partials.split_at_mut((middle - tiles.start) * 2 * self.dim);
        rayon::join(
            || self.spread(tiles.start..middle, base, grads, partials),
            || self.spread(middle..tiles.end, row, high_grads, high_partials),
        );
    }

    fn tile(&self, tile: usize, base: usize, grads: &mut [f32], partials: &mut [f32]) {
        let first = tile * TILE;
        let tile_end = (first + TILE).min(self.segment.len());
        let began_before = first > 0 && self.segment[first - 1] == self.segment[first];
        let goes_on = self.segment.get(tile_end) == Some(&self.segment[tile_end - 1]);
        let (before, after) = partials.split_at_mut(self.dim);
        let mut at = first;
        for run in self.segment[first..tile_end].chunk_by(|a, b| a == b) {
            let sums = if began_before && at == first {
                &mut *before
            } else if goes_on && at + run.len() == tile_end {
                &mut *after
            } else {
                &mut grads[(run[0] as usize - base) * self.dim..][..self.dim]
            };
            sums.fill(0.0);
            for &index in &self.order[at..at + run.len()] {
                let [output, coefficient] = self.access[index as usize];
                let coefficient = f32::from_bits(coefficient);
                let grad = &self.grad_outputs[output as usize * self.dim..][..self.dim];
                sums.iter_mut().zip(grad).for_each(|(sum, g)| *sum += coefficient * g);
            }
            at += run.len();
        }
    }
}
