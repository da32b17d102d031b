//! CPU mirror of `shaders/cached/touch.wgsl`: updates the stamps of hit rows and the frequencies of all rows.

use crate::{
    cpu::stages::cached::{
        freqs::Frequency,
        tables::{Tally, counter::UNIQUE},
    },
    record::of_params::LFU,
    table::layout::{Field, NONE, Params, Shard, Step, way_at},
};

/// Records the rows that were hit: the stamp of their slots and, under LFU, the frequency in the slot and of the row
/// (SPEC 3, step 3). Mirror of `shaders/cached/touch.wgsl`.
pub fn touch<F: Frequency>(
    params: &Params,
    shard: &Shard,
    step: &Step,
    keys: &[u32],
    places: &[u32],
    ways: &mut [u32],
    freqs: &mut [F],
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
            let freq = &mut ways[way_at(width, slot, Field::Freq)];
            *freq = freq.plus(1, params.freq_max);
            let freq = &mut freqs[(row - shard.first_row) as usize];
            *freq = freq.plus(1, params.freq_max);
        }
    }
    tally.end(tables);
}
