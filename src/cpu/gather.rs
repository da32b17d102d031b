use super::{
    record::{MEAN, POOL_NONE},
    spread::each_row,
};
use crate::layout::{NONE, Params};

/// Reads each bag's rows in bag order and pools them. Mirror of `shaders/gather.wgsl`.
pub fn gather(
    params: &Params,
    offsets: &[u32],
    places: &[u32],
    weights: &[f32],
    cache: &[f32],
    scratch: &[f32],
    access: &mut [[u32; 2]],
    outputs: &mut [f32],
) {
    let (dim, row_words) = (params.dim as usize, params.row_words as usize);
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
        if !mean {
            return 1.0;
        }
        let valid = places[bag(output)].iter().filter(|&&place| place != NONE).count();
        1.0 / valid.max(1) as f32
    };
    let rows = if params.pooling == POOL_NONE { params.indices } else { params.bags } as usize;
    for output in 0..rows {
        let scale = scale_of(output);
        for i in bag(output) {
            let coefficient = if weighted { scale * weights[i] } else { scale };
            access[i][1] = coefficient.to_bits();
        }
    }
    let floats = params.indices as usize * dim;
    each_row(&mut outputs[..rows * dim], dim, floats, |output, sums| {
        sums.fill(0.0);
        for i in bag(output) {
            let place = places[i];
            if place == NONE {
                continue;
            }
            let (from, at) = if place >= params.slots { (scratch, place - params.slots) } else { (cache, place) };
            let row = &from[at as usize * row_words..][..dim];
            if weighted {
                sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += value * weights[i]);
            } else {
                sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
            }
        }
        if mean {
            let scale = scale_of(output);
            sums.iter_mut().for_each(|sum| *sum *= scale);
        }
    });
}
