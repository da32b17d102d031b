//! CPU mirror of `shaders/cached/combine.wgsl`: the chunks of each heavy row are added up.

use crate::{
    cpu::stages::cached::gradients::CHUNK,
    table::{
        abi::{Params, Target},
        row::quad_width,
    },
};

/// Adds the chunk sums of each heavy row: eight strided sums, then these in order. Mirror of
/// `shaders/cached/combine.wgsl`.
pub(crate) fn combine(params: &Params, targets: &[Target], segment: &[u32], scratch: &mut [f32]) {
    let dim = params.dim as usize;
    let valid = targets[0].place as usize;
    // The partial rows lie behind the bypassed ones.
    let partials = &mut scratch[params.partials as usize * quad_width(params.dim) as usize..];
    let (mut total, mut strided) = (vec![0.0; dim], vec![0.0; dim]);
    for tile in 0..valid.div_ceil(CHUNK) {
        let one = targets[segment[((tile + 1) * CHUNK).min(valid) - 1] as usize + 1];
        let accesses = (one.end - one.start) as usize;
        if (one.start as usize) < tile * CHUNK || accesses <= CHUNK {
            continue;
        }
        let chunks = accesses.div_ceil(CHUNK);
        let first = (2 * tile + 1) * dim;
        let chunk = |k: usize| if k == 0 { first } else { 2 * (tile + k) * dim };
        for g in 0..chunks.min(8) {
            strided.copy_from_slice(&partials[chunk(g)..][..dim]);
            for k in (g + 8..chunks).step_by(8) {
                add(&mut strided, &partials[chunk(k)..][..dim]);
            }
            if g == 0 {
                total.copy_from_slice(&strided);
            } else {
                add(&mut total, &strided);
            }
        }
        partials[first..][..dim].copy_from_slice(&total);
    }
}

fn add(sums: &mut [f32], values: &[f32]) {
    sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
}
