//! Gradients of the per-index weights.

use crate::{cpu::stages::cached::bags::Bags, host::spread::each_row, table::abi::NONE};

/// Writes the gradient of each index's weight. `dot` gives the dot product of the row at a place and the gradient of an output row.
pub(crate) fn each_weight(
    bags: &Bags<'_>,
    access: &[[u32; 2]],
    grad_weights: &mut [f32],
    dim: usize,
    dot: impl Fn(u32, usize) -> f32 + Send + Sync,
) {
    let scales: Vec<f32> =
        if bags.mean() { (0..bags.outputs()).map(|bag| bags.scale(bag)).collect() } else { Vec::new() };
    let n = bags.params.indices as usize;
    each_row(&mut grad_weights[..n], 1, n * dim, |i, to| {
        let output = access[i][0] as usize;
        to[0] = match bags.places[i] {
            NONE => 0.0,
            place => dot(place, output) * scales.get(output).copied().unwrap_or(1.0),
        };
    });
}

/// The dot product of a row and a gradient, by eight sums.
pub(crate) fn dot(row: &[f32], gradient: &[f32]) -> f32 {
    let (rows, rest) = row.as_chunks::<8>();
    let (gradients, last) = gradient.as_chunks::<8>();
    let mut sums = [0.0f32; 8];
    for (row, gradient) in rows.iter().zip(gradients) {
        for ((sum, x), g) in sums.iter_mut().zip(row).zip(gradient) {
            *sum += x * g;
        }
    }
    sums.iter().sum::<f32>() + rest.iter().zip(last).map(|(x, g)| x * g).sum::<f32>()
}
