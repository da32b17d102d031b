//! Properties of every gradient by shared weights.

use half::f16;
use hotrow::{Optimizer, robe::Config};

use crate::shared::{Bags, gradients};

/// Whether a chunk covers the weight that has this gradient.
pub fn covers(sum: f32) -> bool {
    sum.to_bits() != (-0.0f32).to_bits()
}

/// The gradients rounded to FP16, as bits and as floats.
pub fn halved(grads: &[f32]) -> (Vec<f16>, Vec<f32>) {
    grads.iter().map(|&g| f16::from_f32(g)).map(|half| (half, half.to_f32())).unzip()
}

/// The weights after a step of SGD, computed with the operations of backward.
pub fn descended(weights: &[f32], gradient: &[f32], optimizer: Optimizer) -> Vec<f32> {
    let moved = |w: f32, sum: f32| w - optimizer.lr * (sum + optimizer.weight_decay * w);
    weights.iter().zip(gradient).map(|(&w, &sum)| if covers(sum) { moved(w, sum) } else { w }).collect()
}

/// Checks the gradient against the model: sums within rounding, and covered weights exactly where rows are read.
pub fn is_model(config: &Config, bags: &Bags, grads: &[f32], sums: &[f32]) -> Result<(), String> {
    let wanted = gradients(config, bags, grads);
    if sums.len() != config.weights as usize {
        return Err(format!("{} sums of {} weights", sums.len(), config.weights));
    }
    for (w, &sum) in sums.iter().enumerate() {
        if covers(sum) != wanted.contains_key(&w) {
            return Err(format!("weight {w}: covered, or not, against the model"));
        }
        let (value, size) = wanted.get(&w).copied().unwrap_or_default();
        let gap = (f64::from(sum) - value).abs();
        // Some hundred terms, each rounded a few times and once more by its addition.
        if gap.is_nan() || gap > 2f64.powi(-17) * size {
            return Err(format!("weight {w}: {sum} for {value}"));
        }
    }
    Ok(())
}
