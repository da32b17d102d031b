//! CPU mirror of `shaders/robe/robe_scatter.wgsl`: adds every gradient to its weight's sum, atomically.

use crate::{
    record::rows::gradients::Gradient as _,
    robe::hash::chunk_start,
    scaler::GradSlice,
    table::abi::{NONE, Params, Robe, ScalerState},
};

/// Adds the gradient of each element to its weight's sum, index by index, and marks the weight if weights decay. Mirror
/// of `shaders/robe/robe_scatter.wgsl`, which adds in no fixed order.
pub(crate) fn robe_scatter(
    params: &Params,
    robe: &Robe,
    scaler: &ScalerState,
    hashes: &[u32],
    access: &[[u32; 2]],
    grad_outputs: GradSlice<'_>,
    sums: &mut [f32],
    covered: &mut [u32],
) {
    if scaler.overflow != 0 {
        return;
    }
    let (factors, marks) = (params.has_factors(), robe.marks == 1);
    let gradient = |at: usize| match grad_outputs {
        GradSlice::F32(gradients) => gradients[at],
        GradSlice::F16(gradients) => gradients[at].value(),
    };
    for (&hash, &[output, coefficient]) in hashes[..params.indices as usize].iter().zip(access) {
        if hash == NONE {
            continue;
        }
        let first = (output * robe.dim) as usize;
        for j in 0..robe.chunks {
            let start = chunk_start(hash, j, robe.starts);
            for column in j * robe.chunk..robe.dim.min((j + 1) * robe.chunk) {
                let w = (start + column - j * robe.chunk) as usize;
                let g = scaler.inverse * gradient(first + column as usize);
                sums[w] += if factors { f32::from_bits(coefficient) * g } else { g };
                if marks {
                    covered[w / 32] |= 1 << (w % 32);
                }
            }
        }
    }
}
