use crate::layout::{Field, NONE, Params, Step, Unique, count, way_at};

/// Where each distinct row is now, and what must be fetched to get it there. Mirror of `shaders/resolve.wgsl`.
pub fn resolve(
    params: &Params,
    step: &Step,
    unique: &mut [Unique],
    set_keys: &[u32],
    ways: &[u32],
    fetch_to: &mut [u32],
) {
    for u in 0..step.counts[count::UNIQUE] {
        let at = u as usize;
        let one = &mut unique[at];
        let resident = one.slot != NONE && ways[way_at(one.slot, Field::Tag)] == one.row;
        let was_hit = set_keys[at] == NONE;
        if !resident {
            one.slot = params.slots + u;
        }
        fetch_to[at] = if resident && was_hit { NONE } else { one.slot };
    }
}
