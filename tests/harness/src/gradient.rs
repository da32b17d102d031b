//! Properties of every gradient by shared weights.

use half::f16;
use hotrow::{
    Optimizer,
    robe::{Config, Gradient},
};

use crate::shared::{Bags, bags, gradients, random_grads};

/// The gradient as one value for each weight.
pub fn dense(config: &Config, gradient: &Gradient) -> Vec<f32> {
    match gradient {
        Gradient::Dense(sums) => sums.clone(),
        Gradient::Sparse { locations, sums } => {
            let mut all = vec![0.0; config.weights as usize];
            locations.iter().zip(sums).for_each(|(&w, &sum)| all[w as usize] = sum);
            all
        }
    }
}

/// The gradients rounded to FP16, as bits and as floats.
pub fn halved(grads: &[f32]) -> (Vec<u16>, Vec<f32>) {
    grads.iter().map(|&g| f16::from_f32(g)).map(|half| (half.to_bits(), half.to_f32())).unzip()
}

/// The weights after a step of SGD, computed with the operations of backward.
pub fn descended(weights: &[f32], gradient: &Gradient, optimizer: Optimizer) -> Vec<f32> {
    let mut weights = weights.to_vec();
    let mut one = |w: usize, sum: f32| {
        let g = sum + optimizer.weight_decay * weights[w];
        weights[w] -= optimizer.lr * g;
    };
    match gradient {
        Gradient::Dense(sums) => sums.iter().enumerate().for_each(|(w, &sum)| one(w, sum)),
        Gradient::Sparse { locations, sums } => locations.iter().zip(sums).for_each(|(&w, &sum)| one(w as usize, sum)),
    }
    weights
}

/// Checks the gradient against the model: sums within rounding, and 0 where no row is read. The locations of a sparse gradient are exactly
/// the weights that are read, ascending.
pub fn is_model(config: &Config, bags: &Bags, grads: &[f32], gradient: &Gradient) -> Result<(), String> {
    let wanted = gradients(config, bags, grads);
    let sums = match gradient {
        Gradient::Dense(sums) => sums.clone(),
        Gradient::Sparse { locations, sums } => {
            if !locations.is_sorted_by(|a, b| a < b) {
                return Err("places that do not ascend".into());
            }
            if !locations.iter().map(|&w| w as usize).eq(wanted.keys().copied()) {
                return Err(format!("{} places for {}, or others", locations.len(), wanted.len()));
            }
            if sums.len() != locations.len() {
                return Err(format!("{} sums of {} places", sums.len(), locations.len()));
            }
            dense(config, gradient)
        }
    };
    if sums.len() != config.weights as usize {
        return Err(format!("{} sums of {} weights", sums.len(), config.weights));
    }
    for (w, &sum) in sums.iter().enumerate() {
        let (value, size) = wanted.get(&w).copied().unwrap_or_default();
        let gap = (f64::from(sum) - value).abs();
        // Some hundred terms, each rounded a few times and once more by its addition.
        if gap.is_nan() || gap > 2f64.powi(-17) * size {
            return Err(format!("weight {w}: {sum} for {value}"));
        }
    }
    Ok(())
}

/// The difference of `<forward(M), g>` and `<M, gradient(g)>` as a share of the terms' size, for a random M and a random batch. `run` gets
/// M, the batch and a function that makes the gradients of n outputs. `spoil` exchanges the gradient for another one, which must give a
/// large difference.
pub fn adjoint_gap(
    config: &Config,
    seed: u64,
    spoil: bool,
    run: impl FnOnce(&[f32], &Bags, &dyn Fn(usize) -> Vec<f32>) -> (Vec<f32>, Vec<f32>, Gradient),
) -> f64 {
    let memory = random_grads(seed + 1, config.weights as usize);
    let (outputs, grads, gradient) = run(&memory, &bags(config, seed, 6, 40), &|n| random_grads(seed, n));
    let mut back = dense(config, &gradient);
    if spoil {
        back.rotate_left(1);
    }
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let size: f64 = outputs.iter().zip(&grads).map(|(a, b)| f64::from(a * b).abs()).sum();
    let gap = (dot(&outputs, &grads) - dot(&memory, &back)).abs();
    if size == 0.0 { 0.0 } else { gap / size }
}
