//! Properties of every gradient by shared weights.

use half::f16;
use hotrow::{
    Optimizer,
    robe::{Config, Gradient},
};

use crate::shared::{Bags, gradients};

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
