//! CPU mirror of `shaders/robe/robe_update.wgsl`: updates the weights that chunks cover.

use std::ops::Range;

use crate::{
    config::GroupConfig,
    cpu::stages::{
        counters::{count, counter::SKIPPED_ROWS},
        robe::{
            robe_move::Mover,
            robe_weight_sums::{GradientSums, SHARE},
        },
    },
    robe::storage::Storage,
    scaler::GradSlice,
    table::abi::{Params, Robe, Target},
};

/// Sums the gradients that each weight gets, over ascending starts, and moves it once. Going over all weights or over the starts
/// gives the same result. `memory` and `states` are one window of the array. Mirror of `shaders/robe/robe_update.wgsl`.
pub(crate) fn robe_update(
    rows: &GroupConfig,
    storage: &Storage,
    params: &Params,
    robe: &Robe,
    targets: &[Target],
    accesses: &[[u32; 2]],
    grad_outputs: GradSlice<'_>,
    scratch: &[f32],
    memory: &mut [u32],
    states: &mut [u32],
    tables: &mut [u32],
) {
    let gradients = GradientSums::new(params, robe, targets, accesses, grad_outputs, scratch);
    let each = storage.states_each();
    let all = Covered { gradients, mover: Mover::new(rows, targets[0].start), each };
    let window = robe.window.min(robe.weights - robe.first) as usize;
    let memory: &mut [f32] = bytemuck::cast_slice_mut(&mut memory[..window]);
    // Without states `states` is a dummy.
    let states: &mut [f32] = bytemuck::cast_slice_mut(&mut states[..window * each]);
    let skipped = if gradients.goes_over_all() {
        all.dense(robe.first, memory, states)
    } else {
        all.sparse(0..gradients.starts.len(), robe.first, memory, states)
    };
    count(tables, 0, SKIPPED_ROWS, skipped);
}

struct Covered<'a> {
    gradients: GradientSums<'a>,
    mover: Mover,
    /// States of a weight.
    each: usize,
}

impl Covered<'_> {
    /// Moves the covered weights of a range. Returns how many could not move. `memory` begins at weight `base`; starts
    /// from `beyond` on are ignored.
    fn move_range(&self, weights: Range<u32>, beyond: usize, base: u32, memory: &mut [f32], states: &mut [f32]) -> u32 {
        let mut skipped = 0;
        self.gradients.each(weights, beyond, |w, sum| {
            if sum.chunks > 0 {
                let e = (w - base) as usize;
                skipped += self.mover.weight(sum.value, &mut memory[e], &mut states[e * self.each..][..self.each]);
            }
        });
        skipped
    }

    /// Goes over all weights from `base` on.
    fn dense(&self, base: u32, memory: &mut [f32], states: &mut [f32]) -> u32 {
        if memory.len() > SHARE {
            let half = memory.len() / 2;
            let (low, high) = memory.split_at_mut(half);
            let (low_states, high_states) = states.split_at_mut(half * self.each);
            let (a, b) =
                rayon::join(|| self.dense(base, low, low_states), || self.dense(base + half as u32, high, high_states));
            return a + b;
        }
        self.move_range(base..base + memory.len() as u32, self.gradients.starts.len(), base, memory, states)
    }

    /// Goes from each start to the next, as far as a chunk reaches. `memory` begins at weight `base`.
    fn sparse(&self, starts: Range<usize>, base: u32, memory: &mut [f32], states: &mut [f32]) -> u32 {
        let reach = self.gradients.reach();
        if starts.len() > 1 && starts.len() * reach as usize > SHARE {
            let middle = starts.start + starts.len() / 2;
            let at = self.gradients.starts[middle].row.clamp(base, base + memory.len() as u32);
            let half = (at - base) as usize;
            let (low, high) = memory.split_at_mut(half);
            let (low_states, high_states) = states.split_at_mut(half * self.each);
            let (a, b) = rayon::join(
                || self.sparse(starts.start..middle, base, low, low_states),
                || self.sparse(middle..starts.end, at, high, high_states),
            );
            return a + b;
        }
        let mut skipped = 0;
        for d in starts {
            let row = self.gradients.starts[d].row;
            let end = self.gradients.starts.get(d + 1).map_or(row + reach, |next| next.row.min(row + reach));
            // Only weights of this window. Each other window has a dispatch of its own.
            let range = row.max(base)..end.min(base + memory.len() as u32);
            skipped += self.move_range(range, d + 1, base, memory, states);
        }
        skipped
    }
}
