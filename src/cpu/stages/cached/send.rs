//! CPU mirror of `shaders/cached/send.wgsl`: lists rows for another rank.

use crate::{
    record::of_params as record,
    table::layout::{DIRTY, Field, Params, Shard, way_at},
};

/// Lists of each row its record, or its weights in FP32 where its slot is dirty. Mirror of `shaders/cached/send.wgsl`.
pub fn send(
    params: &Params,
    shard: &Shard,
    keys: &[u32],
    places: &[u32],
    records: &[u32],
    cache: &[f32],
    ways: &[u32],
    sent: &mut [u32],
) {
    let (dim, record_words) = (params.dim as usize, params.record_words as usize);
    let width = params.ways();
    for (i, entry) in sent.chunks_exact_mut(1 + dim.max(record_words)).take(params.indices as usize).enumerate() {
        let place = places[i];
        let dirty = place < params.slots && ways[way_at(width, place, Field::Flags)] & DIRTY != 0;
        entry[0] = u32::from(!dirty);
        if dirty {
            let weights = &cache[place as usize * record::slot_words(params)..][..dim];
            entry[1..=dim].copy_from_slice(bytemuck::cast_slice(weights));
        } else if shard.holds(keys[i]) {
            let at = (keys[i] - shard.first_row) as usize * record_words;
            entry[1..=record_words].copy_from_slice(&records[at..at + record_words]);
        }
    }
}
