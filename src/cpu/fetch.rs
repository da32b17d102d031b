use super::{
    disjoint::each_target,
    record::{self, MODE_TRAIN},
    tables::{count, counter::BYPASS_READS, table_of},
};
use crate::{
    codec,
    layout::{NONE, Params, Shard},
};

/// Record to FP32 row, for the missing rows of one shard. Mirror of `shaders/fetch.wgsl`.
pub fn fetch(
    params: &Params,
    shard: &Shard,
    range: &[[u32; 2]],
    rows: &[u32],
    fetch_to: &[u32],
    records: &[u32],
    cache: &mut [f32],
    scratch: &mut [f32],
    tables: &mut [u32],
) {
    let [first, end] = range[shard.index as usize];
    let items = first as usize..end as usize;
    let layout = record::layout(params);
    let (row_words, record_words) = (params.row_words as usize, params.record_words as usize);
    let unpack = |u: usize, row: &mut [f32]| {
        let at = (rows[u] - shard.first_row) as usize * record_words;
        codec::unpack(&layout, &records[at..at + record_words], row);
    };
    let slot_of = |u: usize| (fetch_to[u] < params.slots).then_some(fetch_to[u] as usize);
    let scratch_of = |u: usize| {
        let bypass = fetch_to[u] != NONE && fetch_to[u] >= params.slots;
        bypass.then(|| (fetch_to[u] - params.slots) as usize)
    };
    each_target(cache, row_words, items.clone(), slot_of, unpack, |_, ()| {});
    each_target(scratch, row_words, items, scratch_of, unpack, |u, ()| {
        if params.mode == MODE_TRAIN {
            count(tables, table_of(params, tables, rows[u]), BYPASS_READS, 1);
        }
    });
}
