//! CPU mirror of `shaders/robe/robe_gather.wgsl`: pools bags; a workgroup writes several output rows.

use crate::{
    cpu::stages::cached::bags::Bags,
    host::spread::each_row,
    robe::{hash::chunk_start, storage::Storage},
    table::abi::{NONE, POOL_NONE, Params, Robe},
};

/// Reads the rows of each bag from the shared array, in bag order, and pools them. Mirror of
/// `shaders/robe/robe_gather.wgsl` (FP32) and of `shaders/robe/robe_decode.wgsl` (packed arrays), which differ only in
/// how they read a weight.
pub(crate) fn robe_gather(
    params: &Params,
    robe: &Robe,
    storage: &Storage,
    offsets: &[u32],
    hashes: &[u32],
    weights: &[f32],
    memory: &[u32],
    access: &mut [[u32; 2]],
    outputs: &mut [f32],
) {
    let dim = robe.dim as usize;
    let bags = Bags { params, offsets, places: hashes, weights };
    bags.coefficients(access);
    let row_of = |output: usize, row: &mut [f32]| {
        let mut room = vec![0.0; if storage.plain() { 0 } else { robe.reach as usize }];
        row.fill(0.0);
        for (j, sums) in (0..).zip(row.chunks_mut(robe.chunk as usize)) {
            for i in bags.of(output).filter(|&i| hashes[i] != NONE) {
                let start = chunk_start(hashes[i], j, robe.starts);
                let values = storage.read(memory, start, sums.len(), &mut room);
                let weight = bags.weight(i);
                if params.pooling == POOL_NONE {
                    // A single row is copied: adding it to 0 would turn its negative zeros positive.
                    sums.copy_from_slice(values);
                    sums.iter_mut().for_each(|value| *value = weight.map_or(*value, |weight| *value * weight));
                } else if let Some(weight) = weight {
                    sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value * weight);
                } else {
                    sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
                }
            }
        }
        if bags.mean() {
            let scale = bags.scale(output);
            row.iter_mut().for_each(|sum| *sum *= scale);
        }
    };
    each_row(&mut outputs[..bags.outputs() * dim], dim, params.indices as usize * dim, row_of);
}
