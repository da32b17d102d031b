//! CPU mirror of `shaders/cached/locate.wgsl`: finds the places of the missed accesses' rows.

use crate::{
    record::of_params::{LFU, MODE_TRAIN},
    table::layout::{COMING, Field, Params, Step, Unique, count, way_at},
};

/// Finds the place of each missed access's row, and under LFU of each hit row that its own batch evicted. Mirror of
/// `shaders/cached/locate.wgsl`.
pub fn locate(
    params: &Params,
    step: &Step,
    keys: &[u32],
    order: &[u32],
    segment: &[u32],
    unique: &[Unique],
    ways: &[u32],
    places: &mut [u32],
) {
    let missed = step.counts[count::MISSED] as usize;
    for (&access, &u) in order[..missed].iter().zip(&segment[..missed]) {
        places[access as usize] = unique[u as usize].slot;
    }
    if params.policy != LFU || params.mode != MODE_TRAIN || missed == 0 {
        return;
    }
    let unique = &unique[..step.counts[count::MOVES] as usize];
    let (n, width) = (params.indices as usize, params.ways());
    for (place, &row) in places[..n].iter_mut().zip(&keys[..n]) {
        if *place < params.slots {
            let now = ways[way_at(width, *place, Field::Stamp)];
            if ways[way_at(width, *place, Field::Flags)] & COMING != 0 && now != row {
                let key = params.miss_key(now);
                let u = unique.partition_point(|one| params.miss_key(one.row) < key);
                *place = params.slots + u as u32;
            }
        }
    }
}
