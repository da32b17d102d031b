//! CPU mirror of `shaders/cached/begin.wgsl`: decides whether the step takes place.

use crate::{
    cpu::stages::cached::linearize::bag_between,
    record::of_params::MODE_TRAIN,
    table::abi::{Feature, NONE, Params, Step, count},
};

/// Decides whether the step takes place; if so, advances the clock (SPEC 3, step 1). Mirror of
/// `shaders/cached/begin.wgsl`.
pub fn begin(
    params: &Params,
    indices: &[u32],
    offsets: &[u32],
    features: &[Feature],
    tables: &mut [u32],
    step: &mut Step,
) {
    if step.bad_offset != 0 {
        step.error = 2;
        step.error_position = NONE - step.bad_offset;
        step.error_value = offsets[step.error_position as usize];
    } else if step.bad_index != 0 {
        step.error = 1;
        step.error_position = NONE - step.bad_index;
        step.error_value = indices[step.error_position as usize];
        let bag = bag_between(offsets, step.error_position, 0, params.bags.max(1) - 1);
        step.error_table = features[(bag / params.bags_per_feature) as usize].table;
    } else if step.accesses > 0 {
        step.counts[count::INDICES] = params.indices;
        if params.mode == MODE_TRAIN {
            tables[0] = tables[0].wrapping_add(1);
        }
    }
    step.t = tables[0];
}
