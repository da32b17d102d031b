//! CPU mirror of `shaders/robe/robe_gradient.wgsl`: the gradient of all shared weights.

use rayon::prelude::*;

use crate::{
    cpu::stages::robe::robe_weight_sums::{GradientSums, SHARE},
    robe::UNCOVERED,
    scaler::GradSlice,
    table::abi::{Params, Robe, Target},
};

/// The gradient at every weight; `UNCOVERED` where no chunk lies. Mirror of `shaders/robe/robe_gradient.wgsl`.
pub(crate) fn robe_gradient(
    params: &Params,
    robe: &Robe,
    targets: &[Target],
    accesses: &[[u32; 2]],
    grad_outputs: GradSlice<'_>,
    scratch: &[f32],
    sums: &mut [f32],
) {
    let gradients = GradientSums::new(params, robe, targets, accesses, grad_outputs, scratch);
    let blocks = sums[..robe.weights as usize].par_chunks_mut(SHARE).enumerate();
    blocks.for_each(|(block, sums)| {
        let first = (block * SHARE) as u32;
        gradients.each(first..first + sums.len() as u32, gradients.starts.len(), |w, sum| {
            sums[(w - first) as usize] = if sum.chunks > 0 { sum.value } else { UNCOVERED };
        });
    });
}
