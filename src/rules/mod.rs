//! The update rules (SPEC 3, Backward), a file each: the facts of a rule, from which layouts, checks and uniforms follow, and its step on the CPU. The
//! shader of each, with the same operations in the same order, is the file of its name in `shaders/rules/`.

mod adagrad;
mod adam;
mod ftrl;
mod lion;
mod momentum;
mod own;
mod row_wise_adagrad;
mod row_wise_adam;
mod sgd;

pub(crate) use adagrad::AdaGrad;
pub(crate) use adam::Adam;
pub(crate) use ftrl::Ftrl;
pub(crate) use lion::Lion;
pub(crate) use momentum::Momentum;
pub(crate) use own::OwnRule;
pub use own::{Device, Difference, Rule, State, check};
pub(crate) use row_wise_adagrad::RowWiseAdaGrad;
pub(crate) use row_wise_adam::RowWiseAdam;
pub(crate) use sgd::Sgd;

/// A state of an element that may be negative.
pub const STATE_SIGNED: u32 = 1;
/// A state of an element that is a moment; the others are sums of squares, as AdaGrad's (SPEC 3).
pub const STATE_MOMENT: u32 = 2;
/// A first moment.
const FIRST_MOMENT: u32 = STATE_SIGNED | STATE_MOMENT;

/// Most hyperparameters of a rule, beside those that every rule has.
pub(crate) const MOST_HYPER: usize = 4;

/// A hyperparameter that some rules have: a field of [`Optimizer`](crate::Optimizer).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hyper {
    Eps,
    Beta1,
    Beta2,
    L1,
    L2,
    Beta,
}

/// The facts of a rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// The rule's hyperparameters, in the order of [`Numbers::hyper`].
    pub(crate) hyper: &'static [Hyper],
    /// The states of an element, at most two: `STATE_*` of each.
    pub(crate) states: &'static [u32],
    /// Whether the row as a whole has a state, made of the mean of its squared gradients: [`Known::row`].
    pub(crate) of_row: bool,
    /// Whether moments are corrected for their start at zero, by the first two hyperparameters: [`Numbers::fix`].
    pub(crate) corrects: bool,
    /// Whether an element without a gradient rests, if nothing decays.
    pub(crate) rests: bool,
    /// Whether records have the states of elements in FP32 alone.
    pub(crate) full_states: bool,
    /// Whether a weight that is given gives a state, too: [`Known::begun`].
    pub(crate) begins: bool,
    /// Whether the weight goes down by a step, so that it may decay beside it.
    pub(crate) descends: bool,
}

impl Facts {
    /// A rule without hyperparameters, states and a memory.
    pub(crate) const PLAIN: Self = Self {
        hyper: &[],
        states: &[],
        of_row: false,
        corrects: false,
        rests: true,
        full_states: false,
        begins: false,
        descends: true,
    };
}

/// What the elements of a row have in common in a step.
///
/// Example: [`Rule`].
// Twin of `Numbers` in `shaders/shared/rule.wgsl`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Numbers {
    /// Learning rate.
    pub lr: f32,
    /// Decoupled weight decay; 0: none.
    pub shrink: f32,
    /// The rule's hyperparameters, in the order of its file.
    pub hyper: [f32; MOST_HYPER],
    /// `1 - beta^t` of the first two hyperparameters, if the rule corrects moments.
    pub fix: [f32; 2],
    /// The row's own state after the step, if it has one.
    pub own: f32,
    /// The number of the step: the group's or the row's own.
    pub t: u32,
}

impl Numbers {
    /// These numbers in step `t`, with the corrections of moments.
    pub(crate) fn at(self, t: u32) -> Self {
        let [beta1, beta2, ..] = self.hyper;
        Self { fix: [correction(beta1, t), correction(beta2, t)], t, ..self }
    }

    /// The weight `w` after a step by `by`, and by its decoupled decay.
    #[inline(always)]
    #[must_use]
    pub fn descend(&self, w: f32, by: f32) -> f32 {
        w - if self.shrink == 0.0 { by } else { by + self.lr * self.shrink * w }
    }
}

/// A weight with its gradient and its states.
///
/// Example: [`Rule`].
// Twin of `Element` in `shaders/shared/rule.wgsl`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Element {
    /// The gradient, within its bounds, with weight decay that is not decoupled.
    pub g: f32,
    /// The weight.
    pub w: f32,
    /// The states; 0 for those that the rule does not have.
    pub states: [f32; 2],
}

/// The step of a rule of the library.
pub(crate) trait Known {
    const FACTS: Facts;

    /// An element after the step.
    fn element(numbers: &Numbers, element: Element) -> Element;

    /// The states of an element whose weight is given, by initial values or by the caller: those that follow from the weight change.
    #[inline(always)]
    fn begun(_: &Numbers, element: Element) -> [f32; 2] {
        element.states
    }

    /// The row's own state after the step, whose squared gradients have this mean.
    #[inline(always)]
    fn row(_: &Numbers, before: f32, _mean: f32) -> f32 {
        before
    }
}

/// `1 - beta^t`, which corrects a moment for its start at zero, by squaring of the complement: from `q = 1 - beta^n`, `1 - beta^2n` is
/// `q * (2 - q)`, without cancellation. Each operation is rounded by itself, so `shaders/shared/correction.wgsl` gives the same bits on
/// every device. Within 2^-20 of its FP64 value, relatively, for a beta of at least 1/2. A `t` of 0 counts as 1.
#[must_use]
pub fn correction(beta: f32, t: u32) -> f32 {
    let mut left = t.max(1);
    let mut q = 1.0 - beta;
    let mut all = 0.0;
    while left > 0 {
        if left & 1 == 1 {
            all += (1.0 - all) * q;
        }
        q *= 2.0 - q;
        left >>= 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest relative distance of `complement(beta, t)` from its FP64 value, over many betas and steps.
    fn farthest(complement: fn(f32, u32) -> f32) -> f64 {
        let betas = [0.5, 0.8, 0.9, 0.95, 0.99, 0.999, 0.9999, 0.99999];
        let steps = (1..2000).chain((11..32).flat_map(|k| [(1 << k) - 1, 1 << k, (1 << k) + 1])).chain([u32::MAX]);
        let exact = |beta: f32, t: u32| -(f64::from(t) * f64::from(beta).ln()).exp_m1();
        let apart = |beta, t| (f64::from(complement(beta, t)) / exact(beta, t) - 1.0).abs();
        steps.flat_map(|t| betas.map(|beta| apart(beta, t))).fold(0.0, f64::max)
    }

    #[test]
    fn the_correction_is_within_its_bound() {
        assert!(farthest(correction) < 2f64.powi(-20), "{}", farthest(correction));
        assert_eq!((correction(0.9, 0), correction(0.0, 7)), (1.0 - 0.9, 1.0));
        // A power of beta taken from 1 loses the digits that the first steps need.
        assert!(farthest(|beta, t| 1.0 - beta.powf(t as f32)) > 2f64.powi(-16));
    }
}
