//! The gradients of the per-index weights of a forward: each row is read again where forward read it.

use rayon::prelude::*;

use crate::{
    cpu::{
        cached::{
            batch::Batch,
            pool::{Source, bag_of, copy, next_bag, scale},
        },
        stages::cached::weight_gradient::dot,
    },
    table::abi::{NONE, POOL_NONE, Params},
};

/// Number of accesses whose rows are read at once.
const ROWS: usize = 256;

/// Writes the gradient of each access's weight, from the gradients of the outputs.
pub(crate) fn weight_gradient(batch: &Batch<'_>, source: &Source<'_>, grad_outputs: &[f32], grad_weights: &mut [f32]) {
    let dim = batch.params.dim as usize;
    let params = &Params { pooling: POOL_NONE, weighted: 0, ..*batch.params };
    let single = Batch { params, ..*batch };
    let part = |k: usize, rows: &mut Vec<f32>, to: &mut [f32]| {
        let first = k * ROWS;
        rows.resize(to.len() * dim, 0.0);
        copy(&single, source, first..first + to.len(), rows);
        let mut bag = bag_of(batch, first);
        let mut factor = scale(batch, bag);
        for ((i, row), to) in (first..).zip(rows.chunks_exact(dim)).zip(to) {
            let next = next_bag(batch, bag, i);
            if next != bag {
                (bag, factor) = (next, scale(batch, next));
            }
            let output = if batch.params.pooling == POOL_NONE { i } else { bag };
            let gradient = &grad_outputs[output * dim..][..dim];
            *to = if batch.rows[i] == NONE { 0.0 } else { dot(row, gradient) * factor };
        }
    };
    if batch.parts() > 1 {
        let parts = grad_weights.par_chunks_mut(ROWS).enumerate();
        parts.for_each_init(Vec::new, |rows, (k, to)| part(k, rows, to));
    } else {
        let mut rows = Vec::new();
        grad_weights.chunks_mut(ROWS).enumerate().for_each(|(k, to)| part(k, &mut rows, to));
    }
}
