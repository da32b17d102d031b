use super::{
    disjoint::each_target,
    record::{self, MODE_TRAIN},
    tables::{
        count,
        counter::{BYPASS_WRITES, SKIPPED_ROWS, WRITE_BACKS},
        table_of,
    },
};
use crate::{
    codec,
    layout::{NONE, Params, Shard},
};

/// FP32 row to record, for the rows of one shard. Mirror of `shaders/write_back.wgsl`.
pub fn write_back(
    params: &Params,
    shard: &Shard,
    range: &[[u32; 2]],
    rows: &[u32],
    sources: &[u32],
    records: &mut [u32],
    cache: &[f32],
    scratch: &[f32],
    tables: &mut [u32],
) {
    let [first, end] = range[shard.index as usize];
    let layout = record::layout(params);
    let noise = record::noise(params, tables[0]);
    let row_words = params.row_words as usize;
    let record_of = |i: usize| (rows[i] != NONE && sources[i] != NONE).then(|| (rows[i] - shard.first_row) as usize);
    let pack = |i: usize, record: &mut [u32]| {
        let (from, place) =
            if sources[i] >= params.slots { (scratch, sources[i] - params.slots) } else { (cache, sources[i]) };
        let row = &from[place as usize * row_words..][..row_words];
        let (weights, state) = row.split_at(params.dim as usize);
        codec::pack(&layout, &noise, rows[i], weights, state, record)
    };
    each_target(records, params.record_words as usize, first as usize..end as usize, record_of, pack, |i, packed| {
        let table = table_of(params, tables, rows[i]);
        if !packed {
            count(tables, table, SKIPPED_ROWS, 1);
        } else if params.mode == MODE_TRAIN {
            count(tables, table, if sources[i] >= params.slots { BYPASS_WRITES } else { WRITE_BACKS }, 1);
        }
    });
}
