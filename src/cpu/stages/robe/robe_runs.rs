use crate::{
    cpu::stages::robe::robe_merge::Gradients,
    scaler::GradSlice,
    table::layout::{Params, Robe, Target},
};

/// Starts of a block: a workgroup of the GPU.
pub(crate) const BLOCK: usize = 256;

/// Of each start the weights that are covered from it on and lie before the next: how many of those the starts before it in its block have,
/// and how many it has. Of each block how many all have. Mirror of `shaders/robe/robe_runs.wgsl`.
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
    // Behind every weight that the chunks so far cover.
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
