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
    /// SGD, AdaGrad or row-wise AdaGrad.
    pub kind: OptimizerKind,
    /// Learning rate.
    pub lr: f32,
    /// Added to the root of the state, outside it.
    pub eps: f32,
    /// This multiple of the weight is added to its gradient.
    pub weight_decay: f32,
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
    debug_assert_eq!(
        states.len(),
        match rule.kind {
            OptimizerKind::Sgd => 0,
            OptimizerKind::AdaGrad => weights.len(),
            OptimizerKind::RowWiseAdaGrad => 1,
        }
    );
    let (old_weights, old_states) = before[..weights.len() + states.len()].split_at_mut(weights.len());
    let finite = moved_from::<true>(rule, grads, weights, states, (old_weights, old_states));
    if !finite {
        weights.copy_from_slice(old_weights);
        states.copy_from_slice(old_states);
    }
    finite
}

/// Moves a row by its gradient. Returns whether the gradient and all new values are finite; if not, the row is spoiled.
#[inline(always)]
pub(crate) fn moved(rule: &Rule, grads: &[f32], weights: &mut [f32], states: &mut [f32]) -> bool {
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
) -> bool {
    let Rule { lr, eps, weight_decay, .. } = *rule;
    let n = weights.len();
    let grads = &grads[..n];
    let (old_weights, old_states) = before;
    let old_weights = &mut old_weights[..if KEEP { n } else { 0 }];
    // The largest magnitude met, as bits: above all finite ones if a value is not finite. A gradient that is not finite
    // shows in its weight.
    let mut largest = 0;
    match rule.kind {
        OptimizerKind::Sgd => {
            for i in 0..n {
                let old = weights[i];
                let new = old - lr * (grads[i] + weight_decay * old);
                if KEEP {
                    old_weights[i] = old;
                }
                weights[i] = new;
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
                largest = largest.max(state.to_bits() & MAGNITUDE).max(new.to_bits() & MAGNITUDE);
            }
        }
        OptimizerKind::RowWiseAdaGrad => {
            let old_state = states[0];
            let state = old_state + sum_of_squares(grads, weights, weight_decay) / n as f32;
            states[0] = state;
            if KEEP {
                old_states[0] = old_state;
            }
            largest = state.to_bits() & MAGNITUDE;
            let by = state.sqrt() + eps;
            for i in 0..n {
                let old = weights[i];
                let new = old - lr * (grads[i] + weight_decay * old) / by;
                if KEEP {
                    old_weights[i] = old;
                }
                weights[i] = new;
                largest = largest.max(new.to_bits() & MAGNITUDE);
            }
        }
    }
    largest < INFINITE
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
