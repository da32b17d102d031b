use super::{
    record::{MEAN, POOL_NONE},
    spread::each_row,
};
use crate::{
    layout::{NONE, Params, Robe},
    robe::hash::chunk_start,
};

/// Reads each bag's rows out of the shared array, in bag order, and pools them. Mirror of `shaders/robe_gather.wgsl`.
pub fn robe_gather(
    params: &Params,
    robe: &Robe,
    offsets: &[u32],
    hashes: &[u32],
    weights: &[f32],
    memory: &[f32],
    access: &mut [[u32; 2]],
    outputs: &mut [f32],
) {
    let dim = robe.dim as usize;
    let weighted = params.weighted == 1;
    let mean = params.pooling == MEAN;
    let bag = |output: usize| {
        if params.pooling == POOL_NONE {
            return output..output + 1;
        }
        let first = offsets[output].min(params.indices);
        first as usize..offsets[output + 1].clamp(first, params.indices) as usize
    };
    let scale_of = |output: usize| {
        let valid = hashes[bag(output)].iter().filter(|&&hash| hash != NONE).count();
        if mean { 1.0 / valid.max(1) as f32 } else { 1.0 }
    };
    let rows = if params.pooling == POOL_NONE { params.indices } else { params.bags } as usize;
    for output in 0..if weighted || mean { rows } else { 0 } {
        let scale = scale_of(output);
        for i in bag(output) {
            access[i][1] = (if weighted { scale * weights[i] } else { scale }).to_bits();
        }
    }
    let row_of = |output: usize, row: &mut [f32]| {
        row.fill(0.0);
        for (j, sums) in (0..).zip(row.chunks_mut(robe.chunk as usize)) {
            for i in bag(output).filter(|&i| hashes[i] != NONE) {
                let values = &memory[chunk_start(hashes[i], j, robe.starts) as usize..][..sums.len()];
                if params.pooling == POOL_NONE {
                    // By itself: a sum would turn its negative zeros positive.
                    sums.copy_from_slice(values);
                    sums.iter_mut().filter(|_| weighted).for_each(|value| *value *= weights[i]);
                } else if weighted {
                    sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value * weights[i]);
                } else {
                    sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
                }
            }
        }
        if mean {
            let scale = scale_of(output);
            row.iter_mut().for_each(|sum| *sum *= scale);
        }
    };
    each_row(&mut outputs[..rows * dim], dim, params.indices as usize * dim, row_of);
}
