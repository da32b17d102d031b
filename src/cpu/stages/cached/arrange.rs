//! CPU mirror of `shaders/cached/arrange.wgsl`: turns a dedup of the accesses into the lists that backward reads.

use crate::table::abi::{ScalerState, Step, Target, count};

/// Writes the accesses in sorted order, and each distinct row with the range of its accesses. No rows if gradients
/// overflowed, or `step` belongs to another forward. Mirror of `shaders/cached/arrange.wgsl`.
pub(crate) fn arrange(
    step: &Step,
    order: &[u32],
    segment: &[u32],
    keys: &[u32],
    places: &[u32],
    access: &[[u32; 2]],
    accesses: &mut [[u32; 2]],
    targets: &mut [Target],
    scaler: &ScalerState,
) {
    let void = scaler.overflow != 0 || step.number != step.wanted || step.carried != step.continued;
    let (valid, rows) = if void { (0, 0) } else { (step.counts[count::VALID], step.counts[count::UNIQUE]) };
    targets[0] = Target { row: rows, place: valid, start: step.t, end: scaler.inverse.to_bits() };
    for j in 0..valid as usize {
        let i = order[j] as usize;
        accesses[j] = access[i];
        let one = &mut targets[segment[j] as usize + 1];
        if j == 0 || segment[j - 1] != segment[j] {
            (one.row, one.place, one.start) = (keys[i], places[i], j as u32);
        }
        one.end = j as u32 + 1;
    }
}
