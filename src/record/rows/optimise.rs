//! The optimisers, a row at a time, vectorised.

use multiversion::multiversion;

use crate::{
    config::{GroupConfig, Optimizer, OptimizerKind, with_rule},
    record::rows::{
        INFINITE, MAGNITUDE,
        lanes::{fold, padded},
    },
    rules::{self, Element, Numbers, OwnRule},
    table::row::{quad_width, row_lanes},
};

/// The optimiser of a call and its numbers (SPEC 3, Backward).
#[derive(Clone, Copy, Debug)]
pub struct RowStep {
    /// The update rule.
    pub kind: OptimizerKind,
    /// What the elements of a row have in common: of the group's step, until a row has numbers of its own.
    pub numbers: Numbers,
    /// This multiple of the weight is added to its gradient.
    pub weight_decay: f32,
    /// Whether the row's last state counts its updates.
    pub own_count: bool,
    /// The largest magnitude of a gradient's element; 0: no bound.
    pub clip_value: f32,
    /// The largest norm of a row's gradient; 0: no bound.
    pub clip_norm: f32,
}

/// Moves a row by its gradient. Returns false and leaves the row as it was if a gradient or a new value is not finite. The gradient is brought within its
/// bounds. `before` is a buffer for a copy of the row: as many floats as it has weights and states.
#[multiversion(targets = "simd")]
pub fn optimise(
    rule: &RowStep,
    grads: &mut [f32],
    weights: &mut [f32],
    states: &mut [f32],
    before: &mut [f32],
) -> bool {
    optimise_row(rule, grads, weights, states, before)
}

#[inline(always)]
pub(crate) fn optimise_row(
    rule: &RowStep,
    grads: &mut [f32],
    weights: &mut [f32],
    states: &mut [f32],
    before: &mut [f32],
) -> bool {
    let (old_weights, old_states) = before[..weights.len() + states.len()].split_at_mut(weights.len());
    let (finite, _) = moved_from::<true>(rule, grads, weights, states, (old_weights, old_states));
    if !finite {
        weights.copy_from_slice(old_weights);
        states.copy_from_slice(old_states);
    }
    finite
}

/// Moves a row by its gradient, which is brought within its bounds. Returns whether the gradient and all new values are finite (if not, the row is
/// spoiled), and whether any bit of the row has changed.
#[inline(always)]
pub(crate) fn moved(rule: &RowStep, grads: &mut [f32], weights: &mut [f32], states: &mut [f32]) -> (bool, bool) {
    moved_from::<false>(rule, grads, weights, states, (&mut [], &mut []))
}

/// [`moved`]; with `KEEP` it writes the old weights and states to `before`.
#[inline(always)]
fn moved_from<const KEEP: bool>(
    rule: &RowStep,
    grads: &mut [f32],
    weights: &mut [f32],
    states: &mut [f32],
    before: (&mut [f32], &mut [f32]),
) -> (bool, bool) {
    let fine = rule.has_no_bounds() || bound(rule, grads, weights);
    let (finite, changed) = with_rule!(rule.kind, R => if rule.numbers.shrink == 0.0 {
        moved_by::<R, KEEP, false>(rule, grads, weights, states, before)
    } else {
        moved_by::<R, KEEP, true>(rule, grads, weights, states, before)
    });
    (fine && finite, changed)
}

/// [`moved_from`] by one rule, with or without decoupled decay.
#[inline(always)]
fn moved_by<R: rules::Known, const KEEP: bool, const DECAYS: bool>(
    rule: &RowStep,
    grads: &[f32],
    weights: &mut [f32],
    states: &mut [f32],
    (old_weights, old_states): (&mut [f32], &mut [f32]),
) -> (bool, bool) {
    let (n, each) = (weights.len(), R::FACTS.states.len());
    let [of_first, of_second] = [0, 1].map(|k| if each > k { n } else { 0 });
    let kept = |n: usize| if KEEP { n } else { 0 };
    let grads = &grads[..n];
    let (first, rest) = states.split_at_mut(of_first);
    let (second, scalars) = rest.split_at_mut(of_second);
    let old_weights = &mut old_weights[..kept(n)];
    let (old_first, rest) = old_states.split_at_mut(kept(of_first));
    let (old_second, old_scalars) = rest.split_at_mut(kept(of_second));
    let has_scalars = R::FACTS.of_row || R::FACTS.corrects;
    if KEEP && has_scalars {
        old_scalars.copy_from_slice(scalars);
    }
    // The largest magnitude met, as bits: above all finite ones if a value is not finite. A gradient that is not finite shows in its weight or its
    // states.
    let (mut largest, mut changed) = (0, 0);
    let mut numbers = rule.numbers;
    let (own, count) = scalars.split_at_mut(usize::from(R::FACTS.of_row));
    if R::FACTS.corrects
        && let [count] = count
    {
        let old = *count;
        *count = next_count(old);
        changed |= old.to_bits() ^ count.to_bits();
        numbers = numbers.at(*count as u32);
    }
    if R::FACTS.of_row
        && let [own] = own
    {
        let mean = sum_of_squares(grads, weights, rule.weight_decay) / n as f32;
        let old = *own;
        *own = R::row(&numbers, old, mean);
        numbers.own = *own;
        changed |= old.to_bits() ^ own.to_bits();
        largest = largest.max(own.to_bits() & MAGNITUDE);
    }
    // In registers: each store might change what lies behind a reference.
    let (numbers, decay) =
        (Numbers { shrink: if DECAYS { numbers.shrink } else { 0.0 }, ..numbers }, rule.weight_decay);
    for i in 0..n {
        let w = weights[i];
        let states = [if each > 0 { first[i] } else { 0.0 }, if each > 1 { second[i] } else { 0.0 }];
        let after = R::element(&numbers, Element { g: grads[i] + decay * w, w, states });
        if KEEP {
            old_weights[i] = w;
        }
        weights[i] = after.w;
        let mut moves = w.to_bits() ^ after.w.to_bits();
        let mut most = after.w.to_bits() & MAGNITUDE;
        if each > 0 {
            if KEEP {
                old_first[i] = states[0];
            }
            first[i] = after.states[0];
            moves |= states[0].to_bits() ^ after.states[0].to_bits();
            most = most.max(after.states[0].to_bits() & MAGNITUDE);
        }
        if each > 1 {
            if KEEP {
                old_second[i] = states[1];
            }
            second[i] = after.states[1];
            moves |= states[1].to_bits() ^ after.states[1].to_bits();
            most = most.max(after.states[1].to_bits() & MAGNITUDE);
        }
        changed |= moves;
        largest = largest.max(most);
    }
    (largest < INFINITE, changed != 0)
}

impl RowStep {
    /// The optimiser of a group in step number `t`.
    #[must_use]
    pub fn new(config: &GroupConfig, t: u32) -> Self {
        let Optimizer { kind, lr, weight_decay, decoupled, clip_value, clip_norm, .. } = config.optimizer;
        let [shrink, weight_decay] = if decoupled { [weight_decay, 0.0] } else { [0.0, weight_decay] };
        let hyper = config.own().map_or(config.optimizer.hyper(), OwnRule::hyper);
        let numbers = Numbers { lr, shrink, hyper, fix: [1.0; 2], own: 0.0, t };
        Self {
            kind,
            numbers: if config.facts().corrects { numbers.at(t) } else { numbers },
            weight_decay,
            own_count: config.optimizer.counts_rows(),
            clip_value: clip_value.unwrap_or_default(),
            clip_norm: clip_norm.unwrap_or_default(),
        }
    }

    fn has_no_bounds(&self) -> bool {
        self.clip_value == 0.0 && self.clip_norm == 0.0
    }
}

/// Brings a row's gradient within its bounds. Returns whether it and its norm are finite.
#[cold]
pub(crate) fn bound(rule: &RowStep, grads: &mut [f32], weights: &[f32]) -> bool {
    let most = if rule.clip_value == 0.0 { f32::INFINITY } else { rule.clip_value };
    let mut finite = true;
    for g in &mut *grads {
        finite &= g.is_finite();
        // NaN stays NaN.
        *g = if *g > most { most } else { *g };
        *g = if *g < -most { -most } else { *g };
    }
    if rule.clip_norm != 0.0 {
        let n = grads.len() as f32;
        let mean = sum_of_squares(grads, weights, 0.0) / n;
        finite &= mean.is_finite();
        let norm = (mean * n).sqrt();
        if norm > rule.clip_norm {
            grads.iter_mut().for_each(|g| *g *= rule.clip_norm / norm);
        }
    }
    finite
}

/// The count of a row's updates after one more. It stays at 2^24, where FP32 stops counting and no correction is left.
fn next_count(count: f32) -> f32 {
    (count + 1.0).min(16_777_216.0)
}

/// Sums squares in the shader's order: each lane adds its Quads in ascending order, then a tree adds the lanes.
#[inline(always)]
fn sum_of_squares(grads: &[f32], weights: &[f32], weight_decay: f32) -> f32 {
    let dim = grads.len() as u32;
    match (quad_width(dim), row_lanes(dim)) {
        (4, 4) => by_lanes::<4, 4, 16>(grads, weights, weight_decay),
        (4, 8) => by_lanes::<4, 8, 32>(grads, weights, weight_decay),
        (4, 16) => by_lanes::<4, 16, 64>(grads, weights, weight_decay),
        (4, _) => by_lanes::<4, 32, 128>(grads, weights, weight_decay),
        (_, 4) => by_lanes::<1, 4, 4>(grads, weights, weight_decay),
        (_, 8) => by_lanes::<1, 8, 8>(grads, weights, weight_decay),
        (_, 16) => by_lanes::<1, 16, 16>(grads, weights, weight_decay),
        _ => by_lanes::<1, 32, 32>(grads, weights, weight_decay),
    }
}

/// Adds `BLOCK` elements at once: a Quad of `WIDTH` for each of the `LANES`.
#[inline(always)]
fn by_lanes<const WIDTH: usize, const LANES: usize, const BLOCK: usize>(
    grads: &[f32],
    weights: &[f32],
    weight_decay: f32,
) -> f32 {
    const { assert!(WIDTH * LANES == BLOCK) };
    let mut sums = [0.0; LANES];
    let ((grads, last_grads), (weights, last_weights)) = (grads.as_chunks(), weights.as_chunks());
    for (grads, weights) in grads.iter().zip(weights) {
        add_squares::<WIDTH, LANES, BLOCK>(&mut sums, grads, weights, weight_decay);
    }
    if !last_grads.is_empty() {
        // Zeros behind the end change no sum.
        let (grads, weights) = (padded(last_grads, 0.0), padded(last_weights, 0.0));
        add_squares::<WIDTH, LANES, BLOCK>(&mut sums, &grads, &weights, weight_decay);
    }
    fold(sums, |a, b| a + b)
}

/// Adds the squares of a block to the sums of its lanes. A function and no closure: a closure would be compiled without the wide
/// instructions.
#[inline(always)]
fn add_squares<const WIDTH: usize, const LANES: usize, const BLOCK: usize>(
    sums: &mut [f32; LANES],
    grads: &[f32; BLOCK],
    weights: &[f32; BLOCK],
    weight_decay: f32,
) {
    let mut squares = [0.0; BLOCK];
    for e in 0..BLOCK {
        let g = grads[e] + weight_decay * weights[e];
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
    use crate::record::rows::optimise::sum_of_squares;

    #[test]
    fn squares_are_added_in_the_order_of_the_lanes() {
        let sum = |dim: usize, ones: &[usize]| {
            let row: Vec<f32> =
                (0..dim).map(|e| if e == 0 { 4096.0 } else { f32::from(u8::from(ones.contains(&e))) }).collect();
            sum_of_squares(&row, &vec![0.0; dim], 0.0)
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
}
