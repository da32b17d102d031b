//! CPU mirror of `shaders/robe/robe_keys.wgsl`: lists every chunk of a batch.

use crate::{
    robe::hash::chunk_start,
    table::abi::{NONE, Params, Robe, Step, count},
};

/// Lists every chunk of the batch: the first weight, the position of its first gradient among the outputs' gradients,
/// and its coefficient. Mirror of `shaders/robe/robe_keys.wgsl`.
pub(crate) fn robe_keys(
    params: &Params,
    robe: &Robe,
    step: &mut Step,
    hashes: &[u32],
    access: &[[u32; 2]],
    chunk_keys: &mut [u32],
    chunk_access: &mut [[u32; 2]],
) {
    step.counts[count::CHUNKS] = step.counts[count::INDICES] * robe.chunks;
    let n = params.indices as usize;
    let each = robe.chunks as usize;
    let chunks = chunk_keys[..n * each].chunks_exact_mut(each).zip(chunk_access.chunks_exact_mut(each));
    for ((&hash, &[output, coefficient]), (keys, access)) in hashes[..n].iter().zip(access).zip(chunks) {
        for (j, (key, access)) in (0..).zip(keys.iter_mut().zip(access)) {
            *key = if hash == NONE { NONE } else { chunk_start(hash, j, robe.starts) };
            *access = [output * robe.dim + j * robe.chunk, coefficient];
        }
    }
}
