//! CPU mirror of `shaders/robe/robe_given.wgsl`: begins a step by a gradient that the caller gives.

use crate::table::abi::{ScalerState, Step, Target, count};

/// Lists one chunk over the whole array, or none if the gradients overflowed. Advances the clock if the forward had no access. Mirror of
/// `shaders/robe/robe_given.wgsl`.
pub(crate) fn robe_given(
    step: &Step,
    scaler: &ScalerState,
    tables: &mut [u32],
    accesses: &mut [[u32; 2]],
    targets: &mut [Target],
) {
    let runs = step.error == 0 && step.number == step.wanted && step.carried == step.continued;
    let advances = runs && step.counts[count::INDICES] == 0;
    let t = step.t + u32::from(advances);
    if advances {
        tables[0] = t;
    }
    let chunks = u32::from(runs && scaler.overflow == 0);
    accesses[0] = [0, 1f32.to_bits()];
    targets[0] = Target { row: chunks, place: chunks, start: t, end: scaler.inverse.to_bits() };
    targets[1] = Target { row: 0, place: 0, start: 0, end: 1 };
}
