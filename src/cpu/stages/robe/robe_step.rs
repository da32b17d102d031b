//! CPU mirror of `shaders/robe/robe_step.wgsl`: the optimiser on scattered sums.

use crate::{
    config::GroupConfig,
    cpu::stages::{
        counters::{count, counter::SKIPPED_ROWS},
        robe::robe_move::Mover,
    },
    table::abi::Robe,
};

/// Moves each covered weight by its sum, once, and clears sums and marks. Mirror of `shaders/robe/robe_step.wgsl`.
pub(crate) fn robe_step(
    rows: &GroupConfig,
    robe: &Robe,
    sums: &mut [f32],
    covered: &mut [u32],
    memory: &mut [u32],
    states: &mut [u32],
    tables: &mut [u32],
) {
    let (mover, marks) = (Mover::new(rows, tables[0]), robe.marks == 1);
    let each = rows.facts().states.len();
    let (memory, states): (&mut [f32], &mut [f32]) =
        (bytemuck::cast_slice_mut(memory), bytemuck::cast_slice_mut(states));
    let mut skipped = 0;
    for (w, sum) in sums[..robe.weights as usize].iter_mut().enumerate() {
        let sum = std::mem::take(sum);
        let moves = if marks { covered[w / 32] >> (w % 32) & 1 == 1 } else { sum.to_bits() != 0 };
        if moves {
            skipped += mover.weight(sum, &mut memory[w], &mut states[w * each..][..each]);
        }
    }
    if marks {
        covered[..robe.weights.div_ceil(32) as usize].fill(0);
    }
    count(tables, 0, SKIPPED_ROWS, skipped);
}
