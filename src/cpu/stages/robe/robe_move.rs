//! Moves one weight of a shared array by its gradient, as `shaders/shared/robe_move.wgsl` does.

use crate::{
    config::OptimizerKind,
    record::{
        of_params,
        rows::optimise::{Rule, correction},
    },
    table::abi::{Params, Rate},
};

/// The optimiser of a step. Twin of `shaders/shared/robe_move.wgsl`.
#[derive(Clone, Copy)]
pub(crate) struct Mover {
    rule: Rule,
    /// The corrections of Adam's moments.
    fix: [f32; 2],
}

impl Mover {
    /// The optimiser of step number `t`.
    pub(crate) fn new(params: &Params, rate: &Rate, t: u32) -> Self {
        let rule = of_params::rule(params, rate, t);
        let of = |beta| if rule.kind.is_adam() { correction(beta, t) } else { 1.0 };
        Self { rule, fix: [rule.beta1, rule.beta2].map(of) }
    }

    /// Moves a weight and its states, as many as the rule has, by the sum of its gradients. Returns 1 if the sum or a new value is not
    /// finite, so that the weight stays; else 0.
    pub(crate) fn weight(&self, sum: f32, weight: &mut f32, states: &mut [f32]) -> u32 {
        let Rule { kind, lr, eps, weight_decay, shrink, beta1, beta2, clip_value, .. } = self.rule;
        let bounded = if clip_value > 0.0 { sum.max(-clip_value).min(clip_value) } else { sum };
        let g = bounded + weight_decay * *weight;
        let mut by = lr * g;
        let (mut first, mut second) = (0.0, 0.0);
        match (kind, &*states) {
            (OptimizerKind::AdaGrad, [squares, ..]) => {
                first = squares + g * g;
                by /= first.sqrt() + eps;
            }
            (OptimizerKind::Momentum, [momentum, ..]) => {
                first = beta1 * momentum + g;
                by = lr * first;
            }
            (OptimizerKind::Adam, [m, v, ..]) => {
                first = m + (1.0 - beta1) * (g - m);
                second = v + (1.0 - beta2) * (g * g - v);
                by = lr * first / (self.fix[0] * ((second / self.fix[1]).sqrt() + eps));
            }
            _ => {}
        }
        if shrink != 0.0 {
            by += lr * shrink * *weight;
        }
        let moved = *weight - by;
        // A bound makes an infinite sum finite.
        if ![sum, g, moved, first, second].into_iter().all(f32::is_finite) {
            return 1;
        }
        *weight = moved;
        states.iter_mut().zip([first, second]).for_each(|(state, new)| *state = new);
        0
    }
}
