use super::{
    disjoint::each_target,
    tables::{count, counter::SKIPPED_ROWS, table_of},
};
use crate::layout::{Field, NONE, Params, Step, Unique, count as counts, way_at};

const SGD: u32 = 0;
const ADAGRAD: u32 = 1;
const ROW_WISE: u32 = 2;

/// The optimiser, once for each distinct row. Mirror of `shaders/update.wgsl`.
pub fn update(
    params: &Params,
    step: &Step,
    unique: &[Unique],
    grads: &[f32],
    cache: &mut [f32],
    scratch: &mut [f32],
    ways: &mut [u32],
    sources: &mut [u32],
    tables: &mut [u32],
) {
    let unique = &unique[..step.counts[counts::UNIQUE] as usize];
    let (dim, row_words) = (params.dim as usize, params.row_words as usize);
    let move_row = |u: usize, row: &mut [f32]| move_row(params, &grads[u * dim..][..dim], row);
    let slot_of = |u: usize| (unique[u].slot < params.slots).then_some(unique[u].slot as usize);
    let scratch_of = |u: usize| unique[u].slot.checked_sub(params.slots).map(|at| at as usize);
    sources[..unique.len()].fill(NONE);
    each_target(cache, row_words, 0..unique.len(), slot_of, move_row, |u, moved| {
        if moved {
            ways[way_at(unique[u].slot, Field::Dirty)] = 1;
        } else {
            count(tables, table_of(params, tables, unique[u].row), SKIPPED_ROWS, 1);
        }
    });
    each_target(scratch, row_words, 0..unique.len(), scratch_of, move_row, |u, moved| {
        if moved {
            sources[u] = unique[u].slot;
        } else {
            count(tables, table_of(params, tables, unique[u].row), SKIPPED_ROWS, 1);
        }
    });
}

/// Updates a row, or returns false and leaves it as it was: a gradient or a new value is not finite.
fn move_row(params: &Params, grads: &[f32], row: &mut [f32]) -> bool {
    let (weights, states) = row.split_at_mut(params.dim as usize);
    let gradient = |g: f32, w: f32| g + params.weight_decay * w;
    let mut row_state = 0.0;
    if params.optimizer == ROW_WISE {
        row_state =
            states[0] + sum_of_squares(grads.iter().zip(&*weights).map(|(&g, &w)| gradient(g, w))) / params.dim as f32;
    }
    if !row_state.is_finite() {
        return false;
    }
    // New weight, new state and gradient of an element.
    let moved = |e: usize, w: f32, states: &[f32]| {
        let g = gradient(grads[e], w);
        let mut by = params.lr * g;
        let mut state = row_state;
        if params.optimizer != SGD {
            if params.optimizer != ROW_WISE {
                state = states[e] + g * g;
            }
            by /= state.sqrt() + params.eps;
        }
        (w - by, state, g)
    };
    let finite = weights.iter().enumerate().all(|(e, &w)| {
        let (new_w, state, g) = moved(e, w, states);
        g.is_finite() && new_w.is_finite() && state.is_finite()
    });
    if !finite {
        return false;
    }
    for (e, w) in weights.iter_mut().enumerate() {
        let (new_w, state, _) = moved(e, *w, states);
        *w = new_w;
        if params.optimizer == ADAGRAD {
            states[e] = state;
        }
    }
    if params.optimizer == ROW_WISE {
        states[0] = row_state;
    }
    true
}

/// 64 strided sums, then a tree: the order of the shader's lanes.
fn sum_of_squares(values: impl Iterator<Item = f32>) -> f32 {
    let mut sums = [0.0f32; 64];
    for (e, g) in values.enumerate() {
        sums[e % 64] += g * g;
    }
    let mut reach = 32;
    while reach > 0 {
        let (low, high) = sums.split_at_mut(reach);
        low.iter_mut().zip(high).for_each(|(a, b)| *a += *b);
        reach /= 2;
    }
    sums[0]
}

#[cfg(test)]
mod tests {
    use super::sum_of_squares;

    #[test]
    fn squares_are_added_in_the_order_of_the_lanes() {
        let sum = |ones: &[usize]| {
            let row: Vec<f32> =
                (0..200).map(|e| if e == 0 { 4096.0 } else { f32::from(u8::from(ones.contains(&e))) }).collect();
            sum_of_squares(row.into_iter())
        };
        let large = 4096.0 * 4096.0;
        // Two ones reach the large square together only if a lane or the tree has added them up before.
        assert_eq!(sum(&[32, 96]), large + 2.0); // one lane, 64 apart
        assert_eq!(sum(&[64, 128]), large); // the large one's own lane
        assert_eq!(sum(&[16, 48]), large + 2.0); // lanes 32 apart, before lane 16 joins lane 0
        assert_eq!(sum(&[32, 16]), large); // each joins lane 0 by itself
        assert_eq!(sum(&[1, 3]), large + 2.0);
    }
}
