use crate::layout::{Field, NONE, Params, Step, count, way_at};

/// Lists every dirty slot and marks it clean. Mirror of `shaders/collect.wgsl`.
pub fn collect(params: &Params, step: &mut Step, ways: &mut [u32], rows: &mut [u32], sources: &mut [u32]) {
    step.counts[count::SLOTS] = params.slots;
    for slot in 0..params.slots {
        let at = slot as usize;
        let dirty = &mut ways[way_at(slot, Field::Dirty)];
        let was_dirty = std::mem::take(dirty) == 1;
        rows[at] = if was_dirty { ways[way_at(slot, Field::Tag)] } else { NONE };
        sources[at] = slot;
    }
}
