//! Moves one weight of a shared array by its gradient, as `shaders/shared/robe_move.wgsl` does.

use crate::{config::OptimizerKind, record::rows::optimise::Rule};

/// Moves a weight and its state by the sum of its gradients: SGD or AdaGrad. Returns 1 if the sum or a new value is not
/// finite, so that the weight stays; else 0. Twin of `shaders/shared/robe_move.wgsl`.
pub(crate) fn move_weight(rule: Rule, sum: f32, weight: &mut f32, state: Option<&mut f32>) -> u32 {
    let Rule { kind, lr, eps, weight_decay, .. } = rule;
    let g = sum + weight_decay * *weight;
    let mut by = lr * g;
    let mut squares = 0.0;
    if let (OptimizerKind::AdaGrad, Some(state)) = (kind, state.as_deref()) {
        squares = *state + g * g;
        by /= squares.sqrt() + eps;
    }
    let moved = *weight - by;
    if !(g.is_finite() && moved.is_finite() && squares.is_finite()) {
        return 1;
    }
    *weight = moved;
    if let Some(state) = state {
        *state = squares;
    }
    0
}
