//! The optimisers, a row at a time, vectorised.

use multiversion::multiversion;

use crate::{
    config::OptimizerKind,
    record::rows::{
        INFINITE, MAGNITUDE,
        lanes::{fold, padded},
    },
    table::row::{quad_width, row_lanes},
};

/// The optimiser of a call and its numbers (SPEC 3, Backward).
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The update rule.
    pub kind: OptimizerKind,
    /// Learning rate.
    pub lr: f32,
    /// Added to the root of the state, outside it.
    pub eps: f32,
    /// This multiple of the weight is added to its gradient.
    pub weight_decay: f32,
    /// This multiple of the weight, times the learning rate, is taken from it beside the rule.
    pub shrink: f32,
    /// The decay of the first moment.
    pub beta1: f32,
    /// The decay of the second moment.
    pub beta2: f32,
    /// Whether the row's last state counts its updates.
    pub own_count: bool,
    /// The largest magnitude of a gradient's element; 0: no bound.
    pub clip_value: f32,
    /// The largest norm of a row's gradient; 0: no bound.
    pub clip_norm: f32,
    /// The step number.
    pub t: u32,
}

impl Rule {
    /// A rule without momentum, clipping and decoupled decay.
    #[cfg(test)]
    pub(crate) const fn plain(kind: OptimizerKind, lr: f32, eps: f32, weight_decay: f32) -> Self {
        let [shrink, beta1, beta2, clip_value, clip_norm] = [0.0; 5];
        Self { kind, lr, eps, weight_decay, shrink, beta1, beta2, own_count: false, clip_value, clip_norm, t: 0 }
    }

    /// Floats of state of a row of `dim` weights.
    const fn states(&self, dim: usize) -> usize {
        self.own_count as usize
            + match self.kind {
                OptimizerKind::Sgd => 0,
                OptimizerKind::RowWiseAdaGrad => 1,
                OptimizerKind::AdaGrad | OptimizerKind::Momentum => dim,
                OptimizerKind::RowWiseAdam => dim + 1,
                OptimizerKind::Adam => 2 * dim,
            }
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

/// Moves a row by its gradient. Returns false and leaves the row as it was if a gradient or a new value is not finite.
/// `before` is a buffer for a copy of the row: as many floats as it has weights and states.
#[multiversion(targets = "simd")]
pub fn optimise(rule: &Rule, grads: &[f32], weights: &mut [f32], states: &mut [f32], before: &mut [f32]) -> bool {
    optimise_row(rule, grads, weights, states, before)
}

#[inline(always)]
pub(crate) fn optimise_row(
    rule: &Rule,
    grads: &[f32],
    weights: &mut [f32],
    states: &mut [f32],
    before: &mut [f32],
) -> bool {
    // As many as the rule keeps.
    debug_assert_eq!(states.len(), rule.states(weights.len()));
    let (old_weights, old_states) = before[..weights.len() + states.len()].split_at_mut(weights.len());
    let (finite, _) = moved_from::<true>(rule, grads, weights, states, (old_weights, old_states));
    if !finite {
        weights.copy_from_slice(old_weights);
        states.copy_from_slice(old_states);
    }
    finite
}

/// Moves a row by its gradient. Returns whether the gradient and all new values are finite (if not, the row is spoiled), and whether any bit of
/// the row has changed.
#[inline(always)]
pub(crate) fn moved(rule: &Rule, grads: &[f32], weights: &mut [f32], states: &mut [f32]) -> (bool, bool) {
    moved_from::<false>(rule, grads, weights, states, (&mut [], &mut []))
}

/// [`moved`]; with `KEEP` it writes the old weights and states to `before`.
#[inline(always)]
fn moved_from<const KEEP: bool>(
    rule: &Rule,
    grads: &[f32],
    weights: &mut [f32],
    states: &mut [f32],
    before: (&mut [f32], &mut [f32]),
) -> (bool, bool) {
    let Rule { lr, eps, weight_decay, .. } = *rule;
    let n = weights.len();
    let grads = &grads[..n];
    let (old_weights, old_states) = before;
    let old_weights = &mut old_weights[..if KEEP { n } else { 0 }];
    // The largest magnitude met, as bits: above all finite ones if a value is not finite. A gradient that is not finite
    // shows in its weight.
    let mut largest = 0;
    let mut changed = 0;
    if rule.kind.has_moments() || rule.clip_value != 0.0 || rule.clip_norm != 0.0 || rule.shrink != 0.0 {
        if KEEP {
            old_weights.copy_from_slice(weights);
            old_states.copy_from_slice(states);
        }
        return moved_at_length(rule, grads, weights, states);
    }
    match rule.kind {
        OptimizerKind::Sgd => {
            for i in 0..n {
                let old = weights[i];
                let new = old - lr * (grads[i] + weight_decay * old);
                if KEEP {
                    old_weights[i] = old;
                }
                weights[i] = new;
                changed |= old.to_bits() ^ new.to_bits();
                largest = largest.max(new.to_bits() & MAGNITUDE);
            }
        }
        OptimizerKind::AdaGrad => {
            let states = &mut states[..n];
            let old_states = &mut old_states[..if KEEP { n } else { 0 }];
            for i in 0..n {
                let (old, old_state) = (weights[i], states[i]);
                let g = grads[i] + weight_decay * old;
                let state = old_state + g * g;
                let new = old - lr * g / (state.sqrt() + eps);
                if KEEP {
                    old_weights[i] = old;
                    old_states[i] = old_state;
                }
                weights[i] = new;
                states[i] = state;
                changed |= (old.to_bits() ^ new.to_bits()) | (old_state.to_bits() ^ state.to_bits());
                largest = largest.max(state.to_bits() & MAGNITUDE).max(new.to_bits() & MAGNITUDE);
            }
        }
        OptimizerKind::RowWiseAdaGrad => {
            let old_state = states[0];
            let state = old_state + sum_of_squares::<false>(grads, weights, weight_decay, Clip::NONE) / n as f32;
            states[0] = state;
            if KEEP {
                old_states[0] = old_state;
            }
            largest = state.to_bits() & MAGNITUDE;
            changed = old_state.to_bits() ^ state.to_bits();
            let by = state.sqrt() + eps;
            for i in 0..n {
                let old = weights[i];
                let new = old - lr * (grads[i] + weight_decay * old) / by;
                if KEEP {
                    old_weights[i] = old;
                }
                weights[i] = new;
                changed |= old.to_bits() ^ new.to_bits();
                largest = largest.max(new.to_bits() & MAGNITUDE);
            }
        }
        OptimizerKind::Momentum | OptimizerKind::Adam | OptimizerKind::RowWiseAdam => unreachable!("they have moments"),
    }
    (largest < INFINITE, changed != 0)
}

/// The bounds of a row's gradient.
#[derive(Clone, Copy)]
struct Clip {
    /// The largest magnitude of an element.
    value: f32,
    /// The factor that brings the row's norm within its bound.
    factor: f32,
}

impl Clip {
    const NONE: Self = Self { value: f32::INFINITY, factor: 1.0 };

    /// The element within the bounds. NaN stays NaN.
    #[inline(always)]
    fn of(self, g: f32) -> f32 {
        let g = if g > self.value { self.value } else { g };
        let g = if g < -self.value { -self.value } else { g };
        g * self.factor
    }
}

/// [`moved`] for every rule and every setting.
#[inline(always)]
fn moved_at_length(rule: &Rule, grads: &[f32], weights: &mut [f32], states: &mut [f32]) -> (bool, bool) {
    // A bound would make an infinite gradient finite.
    let mut largest = grads.iter().fold(0, |largest, g| largest.max(g.to_bits() & MAGNITUDE));
    let mut changed = 0;
    let mut see = |x: f32, old: f32| {
        largest = largest.max(x.to_bits() & MAGNITUDE);
        changed |= x.to_bits() ^ old.to_bits();
    };
    let Rule { kind, lr, eps, weight_decay, shrink, beta1, beta2, .. } = *rule;
    let n = weights.len();
    let mut clip = Clip::NONE;
    if rule.clip_value != 0.0 {
        clip.value = rule.clip_value;
    }
    if rule.clip_norm != 0.0 {
        let mean = sum_of_squares::<true>(grads, weights, 0.0, clip) / n as f32;
        see(mean, mean);
        let norm = (mean * n as f32).sqrt();
        clip.factor = if norm > rule.clip_norm { rule.clip_norm / norm } else { 1.0 };
    }
    let (states, count) = states.split_at_mut(states.len() - usize::from(rule.own_count));
    let mut t = rule.t;
    if let [count] = count {
        let old = *count;
        *count = next_count(old);
        see(*count, old);
        t = *count as u32;
    }
    let row_wise = matches!(kind, OptimizerKind::RowWiseAdaGrad | OptimizerKind::RowWiseAdam);
    let (each, own) = states.split_at_mut(states.len() - usize::from(row_wise));
    let mut by = 0.0;
    if let [own] = own {
        let mean = sum_of_squares::<true>(grads, weights, weight_decay, clip) / n as f32;
        let old = *own;
        *own = if kind == OptimizerKind::RowWiseAdam { old + (1.0 - beta2) * (mean - old) } else { old + mean };
        see(*own, old);
        by = *own;
    }
    let [fix1, fix2] = if kind.is_adam() { [correction(beta1, t), correction(beta2, t)] } else { [1.0, 1.0] };
    let (first, second) = each.split_at_mut(if each.is_empty() { 0 } else { n });
    for i in 0..n {
        let (w, old) = (weights[i], first.get(i).copied().unwrap_or_default());
        let g = clip.of(grads[i]) + weight_decay * w;
        let mut step = match kind {
            OptimizerKind::Sgd => lr * g,
            OptimizerKind::AdaGrad => {
                first[i] += g * g;
                lr * g / (first[i].sqrt() + eps)
            }
            OptimizerKind::RowWiseAdaGrad => lr * g / (by.sqrt() + eps),
            OptimizerKind::Momentum => {
                first[i] = beta1 * first[i] + g;
                lr * first[i]
            }
            OptimizerKind::Adam | OptimizerKind::RowWiseAdam => {
                first[i] += (1.0 - beta1) * (g - first[i]);
                let v = match second.get_mut(i) {
                    None => by,
                    Some(v) => {
                        let old = *v;
                        *v += (1.0 - beta2) * (g * g - old);
                        see(*v, old);
                        *v
                    }
                };
                lr * first[i] / (fix1 * ((v / fix2).sqrt() + eps))
            }
        };
        if shrink != 0.0 {
            step += lr * shrink * w;
        }
        weights[i] = w - step;
        see(weights[i], w);
        see(first.get(i).copied().unwrap_or_default(), old);
    }
    (largest < INFINITE, changed != 0)
}

/// The count of a row's updates after one more. It stays at 2^24, where FP32 stops counting and no correction is left.
fn next_count(count: f32) -> f32 {
    (count + 1.0).min(16_777_216.0)
}

/// Sums squares in the shader's order: each lane adds its Quads in ascending order, then a tree adds the lanes.
#[inline(always)]
fn sum_of_squares<const CLIP: bool>(grads: &[f32], weights: &[f32], weight_decay: f32, clip: Clip) -> f32 {
    let dim = grads.len() as u32;
    match (quad_width(dim), row_lanes(dim)) {
        (4, 4) => by_lanes::<4, 4, 16, CLIP>(grads, weights, weight_decay, clip),
        (4, 8) => by_lanes::<4, 8, 32, CLIP>(grads, weights, weight_decay, clip),
        (4, 16) => by_lanes::<4, 16, 64, CLIP>(grads, weights, weight_decay, clip),
        (4, _) => by_lanes::<4, 32, 128, CLIP>(grads, weights, weight_decay, clip),
        (_, 4) => by_lanes::<1, 4, 4, CLIP>(grads, weights, weight_decay, clip),
        (_, 8) => by_lanes::<1, 8, 8, CLIP>(grads, weights, weight_decay, clip),
        (_, 16) => by_lanes::<1, 16, 16, CLIP>(grads, weights, weight_decay, clip),
        _ => by_lanes::<1, 32, 32, CLIP>(grads, weights, weight_decay, clip),
    }
}

/// Adds `BLOCK` elements at once: a Quad of `WIDTH` for each of the `LANES`.
#[inline(always)]
fn by_lanes<const WIDTH: usize, const LANES: usize, const BLOCK: usize, const CLIP: bool>(
    grads: &[f32],
    weights: &[f32],
    weight_decay: f32,
    clip: Clip,
) -> f32 {
    const { assert!(WIDTH * LANES == BLOCK) };
    let mut sums = [0.0; LANES];
    let ((grads, last_grads), (weights, last_weights)) = (grads.as_chunks(), weights.as_chunks());
    for (grads, weights) in grads.iter().zip(weights) {
        add_squares::<WIDTH, LANES, BLOCK, CLIP>(&mut sums, grads, weights, weight_decay, clip);
    }
    if !last_grads.is_empty() {
        // Zeros behind the end change no sum.
        let (grads, weights) = (padded(last_grads, 0.0), padded(last_weights, 0.0));
        add_squares::<WIDTH, LANES, BLOCK, CLIP>(&mut sums, &grads, &weights, weight_decay, clip);
    }
    fold(sums, |a, b| a + b)
}

/// Adds the squares of a block to the sums of its lanes. A function and no closure: a closure would be compiled without the wide
/// instructions.
#[inline(always)]
fn add_squares<const WIDTH: usize, const LANES: usize, const BLOCK: usize, const CLIP: bool>(
    sums: &mut [f32; LANES],
    grads: &[f32; BLOCK],
    weights: &[f32; BLOCK],
    weight_decay: f32,
    clip: Clip,
) {
    let mut squares = [0.0; BLOCK];
    for e in 0..BLOCK {
        let g = if CLIP { clip.of(grads[e]) } else { grads[e] } + weight_decay * weights[e];
        squares[e] = g * g;
    }
    for lane in 0..LANES {
        let mut sum = sums[lane];
        for k in 0..WIDTH {
            sum += squares[lane * WIDTH + k];
        }
        sums[lane] = sum;
    }
}

#[cfg(test)]
mod tests {
    use crate::record::rows::optimise::{Clip, correction, sum_of_squares};

    #[test]
    fn squares_are_added_in_the_order_of_the_lanes() {
        let sum = |dim: usize, ones: &[usize]| {
            let row: Vec<f32> =
                (0..dim).map(|e| if e == 0 { 4096.0 } else { f32::from(u8::from(ones.contains(&e))) }).collect();
            sum_of_squares::<false>(&row, &vec![0.0; dim], 0.0, Clip::NONE)
        };
        let large = 4096.0 * 4096.0;
        // Two ones change the large square only if a lane, or the tree, adds them to each other first.
        assert_eq!(sum(199, &[16, 48]), large + 2.0); // 32 lanes: one lane, 32 apart
        assert_eq!(sum(199, &[32, 64]), large); // the lane of the large one
        assert_eq!(sum(199, &[8, 24]), large + 2.0); // lanes 16 apart, before lane 8 joins lane 0
        assert_eq!(sum(199, &[16, 8]), large); // each is added to lane 0 by itself
        assert_eq!(sum(7, &[1, 5]), large + 2.0); // 8 lanes, 4 apart
        assert_eq!(sum(7, &[2, 4]), large);
        assert_eq!(sum(200, &[64, 65]), large + 2.0); // both in one Quad
        assert_eq!(sum(200, &[1, 2]), large); // in the Quad of the large one
        assert_eq!(sum(200, &[128, 129]), large); // in the lane of the large one
        assert_eq!(sum(64, &[32, 33]), large + 2.0); // 16 lanes
        assert_eq!(sum(8, &[4, 5]), large + 2.0);
    }

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
