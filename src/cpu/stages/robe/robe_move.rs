//! Moves one weight of a shared array by its gradient, as `shaders/shared/robe_move.wgsl` does.

use crate::{
    config::{GroupConfig, with_rule},
    record::rows::optimise::RowStep,
    rules::{Element, Known as _},
};

/// The optimiser of a step. Twin of `shaders/shared/robe_move.wgsl`.
#[derive(Clone, Copy)]
pub(crate) struct Mover(RowStep);

impl Mover {
    /// The optimiser of step number `t`.
    pub(crate) fn new(rows: &GroupConfig, t: u32) -> Self {
        Self(RowStep::new(rows, t))
    }

    /// Moves a weight and its states, as many as the rule has, by the sum of its gradients. Returns 1 if the sum or a new value is not
    /// finite, so that the weight stays; else 0.
    pub(crate) fn weight(&self, sum: f32, weight: &mut f32, states: &mut [f32]) -> u32 {
        let RowStep { kind, numbers, weight_decay, clip_value, .. } = &self.0;
        let bounded = if *clip_value > 0.0 { sum.max(-clip_value).min(*clip_value) } else { sum };
        let state = |k| states.get(k).copied().unwrap_or_default();
        let before = Element { g: bounded + weight_decay * *weight, w: *weight, states: [state(0), state(1)] };
        let after = with_rule!(*kind, R => R::element(numbers, before));
        // A bound makes an infinite sum finite.
        if ![sum, after.g, after.w, after.states[0], after.states[1]].into_iter().all(f32::is_finite) {
            return 1;
        }
        *weight = after.w;
        states.iter_mut().zip(after.states).for_each(|(state, new)| *state = new);
        0
    }
}
