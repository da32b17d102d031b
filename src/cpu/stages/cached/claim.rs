//! CPU mirror of `shaders/cached/claim.wgsl`: lists the distinct missing rows.

use crate::{
    cpu::stages::cached::{
        freqs::Frequency,
        tables::{
            Tally,
            counter::{UNIQUE, UNIQUE_MISSES},
        },
    },
    record::of_params::{LFU, MODE_TRAIN},
    table::layout::{Move, NONE, Params, Shard, Step, Unique, count as counts},
};

/// Lists the distinct missing rows, each bypassed until admission gives it a slot. Mirror of
/// `shaders/cached/claim.wgsl`.
pub fn claim<F: Frequency>(
    params: &Params,
    shard: &Shard,
    step: &Step,
    keys: &[u32],
    order: &[u32],
    starts: &[u32],
    unique: &mut [Unique],
    moves: &mut [Move],
    freqs: &mut [F],
    tables: &mut [u32],
) {
    let n = step.counts[counts::MOVES] as usize;
    let mut tally = Tally::default();
    for u in 0..n {
        let row = keys[order[starts[u] as usize] as usize];
        if !shard.holds(row) {
            continue;
        }
        let end = if u + 1 < n { starts[u + 1] } else { step.counts[counts::MISSED] };
        let count = end - starts[u];
        let mut key = count;
        if params.mode == MODE_TRAIN {
            tally.count(params, tables, row, UNIQUE);
            tally.count(params, tables, row, UNIQUE_MISSES);
            if params.policy == LFU {
                let freq = &mut freqs[(row - shard.first_row) as usize];
                *freq = freq.plus(count, params.freq_max);
                key = freq.get();
            }
        }
        let slot = params.slots + u as u32;
        unique[u] = Unique { row, count, key, slot };
        moves[u] = Move { place: slot, row, victim: NONE, flags: 0 };
    }
    tally.end(tables);
}
