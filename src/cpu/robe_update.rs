use std::ops::Range;

use super::{
    merge::CHUNK,
    record,
    robe_merge::{Gradients, Sum},
    rows::Rule,
    tables::{count, counter::SKIPPED_ROWS},
};
use crate::{
    GradSlice, OptimizerKind,
    layout::{Params, Robe, Target},
};

/// Weights below which one thread moves them.
const SHARE: usize = 1 << 12;

/// Sums what each weight is due, start by start in ascending order, and moves it once. Mirror of `shaders/robe_update.wgsl`; whether
/// all weights are looked at or those that chunks cover makes no difference to the result.
pub fn robe_update(
    params: &Params,
    robe: &Robe,
    targets: &[Target],
    accesses: &[[u32; 2]],
    grad_outputs: GradSlice<'_>,
    scratch: &[f32],
    memory: &mut [f32],
    states: &mut [f32],
    tables: &mut [u32],
) {
    let starts = &targets[1..=targets[0].row as usize];
    let inverse = f32::from_bits(targets[0].end);
    let gradients = Gradients { params, robe, accesses, grad_outputs, inverse };
    let all = Covered { gradients, starts, scratch, rule: record::rule(params) };
    let memory = &mut memory[..robe.weights as usize];
    // Without a state no element of it is looked at.
    let states = if params.optimizer == 0 { &mut [][..] } else { &mut states[..robe.weights as usize] };
    let skipped =
        if robe.dense == 1 { all.dense(0, memory, states) } else { all.sparse(0..starts.len(), 0, memory, states) };
    count(tables, 0, SKIPPED_ROWS, skipped);
}

struct Covered<'a> {
    gradients: Gradients<'a>,
    /// The distinct starts, ascending, each with its chunks.
    starts: &'a [Target],
    scratch: &'a [f32],
    rule: Rule,
}

impl Covered<'_> {
    /// Of the chunks that begin at a start, at their weight `e`.
    fn total(&self, one: &Target, e: u32) -> Sum {
        if !Gradients::heavy(one) {
            return self.gradients.sum(one.start..one.end, e);
        }
        let Robe { reach, tail, .. } = *self.gradients.robe;
        let row = 2 * (one.start as usize / CHUNK) + 1;
        let sums = &self.scratch[row * self.gradients.params.dim as usize..];
        Sum { value: sums[e as usize], chunks: u32::from(e < tail || sums[reach as usize] > 0.0) }
    }

    /// Of all chunks that cover weight `w`; `first` is the first start that reaches so far.
    fn due(&self, w: u32, first: usize) -> Sum {
        let mut sum = Sum::default();
        for one in self.starts[first..].iter().take_while(|one| one.row <= w) {
            let total = self.total(one, w - one.row);
            sum.value += total.value;
            sum.chunks += total.chunks;
        }
        sum
    }

    /// Moves the weights of a range, of which `memory` begins at `base`; how many had to stay. No start from `beyond` on is among them.
    fn move_range(&self, weights: Range<u32>, beyond: usize, base: u32, memory: &mut [f32], states: &mut [f32]) -> u32 {
        let passed = |one: &Target, w: u32| one.row + self.gradients.robe.reach <= w;
        let mut first = self.starts[..beyond].partition_point(|one| passed(one, weights.start));
        let mut skipped = 0;
        for w in weights {
            while first < beyond && passed(&self.starts[first], w) {
                first += 1;
            }
            let e = (w - base) as usize;
            skipped += self.step(self.due(w, first), &mut memory[e], states.get_mut(e));
        }
        skipped
    }

    /// Moves a weight that some chunk covers; 1 if it had to stay.
    fn step(&self, sum: Sum, weight: &mut f32, state: Option<&mut f32>) -> u32 {
        if sum.chunks == 0 {
            return 0;
        }
        let Rule { kind, lr, eps, weight_decay } = self.rule;
        let g = sum.value + weight_decay * *weight;
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

    /// All weights from `base` on.
    fn dense(&self, base: u32, memory: &mut [f32], states: &mut [f32]) -> u32 {
        if memory.len() > SHARE {
            let half = memory.len() / 2;
            let (low, high) = memory.split_at_mut(half);
            let (low_states, high_states) = states.split_at_mut(half.min(states.len()));
            let (a, b) =
                rayon::join(|| self.dense(base, low, low_states), || self.dense(base + half as u32, high, high_states));
            return a + b;
        }
        self.move_range(base..base + memory.len() as u32, self.starts.len(), base, memory, states)
    }

    /// The weights from each of some starts to the next, as far as a chunk reaches; `memory` begins at weight `base`.
    fn sparse(&self, starts: Range<usize>, base: u32, memory: &mut [f32], states: &mut [f32]) -> u32 {
        let reach = self.gradients.robe.reach;
        if starts.len() > 1 && starts.len() * reach as usize > SHARE {
            let middle = starts.start + starts.len() / 2;
            let at = self.starts[middle].row;
            let half = (at - base) as usize;
            let (low, high) = memory.split_at_mut(half);
            let (low_states, high_states) = states.split_at_mut(half.min(states.len()));
            let (a, b) = rayon::join(
                || self.sparse(starts.start..middle, base, low, low_states),
                || self.sparse(middle..starts.end, at, high, high_states),
            );
            return a + b;
        }
        let mut skipped = 0;
        for d in starts {
            let row = self.starts[d].row;
            let end = self.starts.get(d + 1).map_or(row + reach, |next| next.row.min(row + reach));
            skipped += self.move_range(row..end, d + 1, base, memory, states);
        }
        skipped
    }
}
