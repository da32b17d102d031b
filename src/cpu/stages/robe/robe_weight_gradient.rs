//! CPU mirror of `shaders/robe/robe_weight_gradient.wgsl`: the gradient of each index's weight; a workgroup has several indices.

use crate::{
    cpu::stages::cached::{
        bags::Bags,
        weight_gradient::{dot, each_weight},
    },
    robe::{hash::chunk_start, storage::Storage},
    table::abi::{Params, Robe},
};

/// The gradient of the loss with respect to each index's weight: the dot product of its row and the gradient of its output row; with mean pooling
/// divided by the number of rows of its bag. Mirror of `shaders/robe/robe_weight_gradient.wgsl`.
pub(crate) fn robe_weight_gradient(
    params: &Params,
    robe: &Robe,
    storage: &Storage,
    offsets: &[u32],
    access: &[[u32; 2]],
    hashes: &[u32],
    memory: &[u32],
    grad_outputs: &[f32],
    grad_weights: &mut [f32],
) {
    let dim = robe.dim as usize;
    each_weight(&Bags { params, offsets, places: hashes, weights: &[] }, access, grad_weights, dim, |hash, output| {
        let mut room = vec![0.0; if storage.plain() { 0 } else { robe.reach as usize }];
        let chunks = grad_outputs[output * dim..][..dim].chunks(robe.chunk as usize);
        let products = (0..).zip(chunks).map(|(j, gradients)| {
            let start = chunk_start(hash, j, robe.starts);
            dot(storage.read(memory, start, gradients.len(), &mut room), gradients)
        });
        products.sum()
    });
}
