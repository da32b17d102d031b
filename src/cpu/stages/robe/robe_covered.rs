//! CPU mirror of `shaders/robe/robe_covered.wgsl`: lists the weights that chunks cover, and the gradient of each.

use std::ops::Range;

use crate::{
    cpu::stages::robe::{
        robe_runs::BLOCK,
        robe_weight_sums::{GradientSums, SHARE},
    },
    scaler::GradSlice,
    table::abi::{Params, Robe, Target},
};

/// Lists the covered weights in ascending order, each with its gradient. `blocks` holds how many covered weights
/// precede each block of starts. Mirror of `shaders/robe/robe_covered.wgsl`.
pub fn robe_covered(
    params: &Params,
    robe: &Robe,
    targets: &[Target],
    accesses: &[[u32; 2]],
    grad_outputs: GradSlice<'_>,
    scratch: &[f32],
    runs: &[[u32; 2]],
    blocks: &[u32],
    locations: &mut [u32],
    sums: &mut [f32],
) {
    let gradients = GradientSums::new(params, robe, targets, accesses, grad_outputs, scratch);
    let all = Runs { gradients, runs, blocks };
    all.write(0..gradients.starts.len(), 0, locations, sums);
}

struct Runs<'a> {
    gradients: GradientSums<'a>,
    runs: &'a [[u32; 2]],
    blocks: &'a [u32],
}

impl Runs<'_> {
    /// The position in the list of start `d`'s first weight.
    fn place(&self, d: usize) -> usize {
        (self.blocks[d / BLOCK] + self.runs[d][0]) as usize
    }

    /// Writes the weights of some starts. `locations` and `sums` begin at list position `base`.
    fn write(&self, starts: Range<usize>, base: usize, locations: &mut [u32], sums: &mut [f32]) {
        if starts.len() > 1 && starts.len() * self.gradients.reach() as usize > SHARE {
            let middle = starts.start + starts.len() / 2;
            let at = self.place(middle);
            let (low, high) = locations.split_at_mut(at - base);
            let (low_sums, high_sums) = sums.split_at_mut(at - base);
            rayon::join(
                || self.write(starts.start..middle, base, low, low_sums),
                || self.write(middle..starts.end, at, high, high_sums),
            );
            return;
        }
        for d in starts {
            let (row, at) = (self.gradients.starts[d].row, self.place(d) - base);
            self.gradients.each(row..row + self.runs[d][1], d + 1, |w, sum| {
                let to = at + (w - row) as usize;
                (locations[to], sums[to]) = (w, sum.value);
            });
        }
    }
}
