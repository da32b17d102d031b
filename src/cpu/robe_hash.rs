use super::{
    record::MODE_TRAIN,
    tables::{Tally, counter::ACCESSES},
};
use crate::{
    layout::{NONE, Params, Step, count},
    robe::hash::row_hash,
};

/// The hash of each access's row. Mirror of `shaders/robe_hash.wgsl`.
pub fn robe_hash(params: &Params, step: &Step, keys: &[u32], hashes: &mut [u32], tables: &mut [u32]) {
    let n = params.indices as usize;
    if step.counts[count::INDICES] == 0 {
        hashes[..n].fill(NONE); // a step that does not take place has no rows
        return;
    }
    let mut tally = Tally::default();
    for (hash, &row) in hashes[..n].iter_mut().zip(keys) {
        *hash = if row == NONE { NONE } else { row_hash(row) };
        if row != NONE && params.mode == MODE_TRAIN {
            tally.count(params, tables, row, ACCESSES);
        }
    }
    tally.end(tables);
}
