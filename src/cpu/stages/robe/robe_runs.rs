//! CPU mirror of `shaders/robe/robe_runs.wgsl`: finds the weights of a sparse gradient.

use crate::{
    cpu::stages::robe::robe_merge::Gradients,
    scaler::GradSlice,
    table::abi::{Params, Robe, Target},
};

/// Starts of a block: one GPU workgroup.
pub(crate) const BLOCK: usize = 256;

/// Counts the covered weights from each start up to the next: their number, and the number at earlier starts of the
/// same block. Each block's total goes to `blocks`. Mirror of `shaders/robe/robe_runs.wgsl`.
pub fn robe_runs(
    params: &Params,
    robe: &Robe,
    targets: &[Target],
    accesses: &[[u32; 2]],
    scratch: &[f32],
    runs: &mut [[u32; 2]],
    blocks: &mut [u32],
) {
    let starts = &targets[1..=targets[0].row as usize];
    let none = GradSlice::F32(&[]);
    let gradients = Gradients { params, robe, accesses, grad_outputs: none, inverse: 1.0 };
    // The end of the weights that the chunks so far cover.
    let mut covered = 0;
    for ((block, starts), (runs, total)) in
        starts.chunks(BLOCK).enumerate().zip(runs.chunks_mut(BLOCK).zip(blocks.iter_mut()))
    {
        let mut before = 0;
        for ((k, one), run) in starts.iter().enumerate().zip(runs) {
            covered = covered.max(one.row + gradients.longest(one, scratch));
            let next = targets[1..=targets[0].row as usize].get(block * BLOCK + k + 1);
            let end = next.map_or(covered, |next| covered.min(next.row));
            *run = [before, end - one.row];
            before += end - one.row;
        }
        *total = before;
    }
}
