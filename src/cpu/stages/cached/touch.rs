//! CPU mirror of `shaders/cached/touch.wgsl`: updates the stamps of hit rows and the frequencies of all rows.

use crate::{
    cpu::stages::cached::tables::{Tally, counter::UNIQUE},
    record::of_params::LFU,
    table::layout::{Field, NONE, Params, Shard, Step, way_at},
};

/// Records the rows that were hit: the stamp of their slots and, under LFU, the frequency in the slot and of the row
/// (SPEC 3, step 3). Mirror of `shaders/cached/touch.wgsl`.
pub fn touch(
    params: &Params,
    shard: &Shard,
    step: &Step,
    keys: &[u32],
    places: &[u32],
    ways: &mut [u32],
    freqs: &mut [u32],
    tables: &mut [u32],
) {
    let mut tally = Tally::default();
    let (n, width) = (params.indices as usize, params.ways());
    for (&row, &slot) in keys[..n].iter().zip(&places[..n]) {
        if slot == NONE || !shard.holds(row) {
            continue;
        }
        let stamp = &mut ways[way_at(width, slot, Field::Stamp)];
        if *stamp < step.t {
            *stamp = step.t;
            tally.count(params, tables, row, UNIQUE);
        }
        if params.policy == LFU {
            for freq in [&mut ways[way_at(width, slot, Field::Freq)], &mut freqs[(row - shard.first_row) as usize]] {
                *freq = freq.saturating_add(1).min(params.freq_max);
            }
        }
    }
    tally.end(tables);
}
