//! CPU mirror of `shaders/robe/robe_hash.wgsl`: hashes the row of each access.

use crate::{
    cpu::stages::counters::{Tally, counter::ACCESSES},
    robe::hash::row_place,
    table::abi::{NONE, Params, Robe, Step, count},
};

/// Hashes the row of each access. Mirror of `shaders/robe/robe_hash.wgsl`.
pub(crate) fn robe_hash(
    params: &Params,
    robe: &Robe,
    step: &Step,
    keys: &[u32],
    hashes: &mut [u32],
    tables: &mut [u32],
) {
    let n = params.indices as usize;
    if step.counts[count::INDICES] == 0 {
        hashes[..n].fill(NONE); // a refused step has no rows
        return;
    }
    let mut tally = Tally::default();
    for (hash, &row) in hashes[..n].iter_mut().zip(keys) {
        *hash = if row == NONE { NONE } else { row_place(row, robe.stride, robe.rows) };
        if row != NONE && params.trains() {
            tally.count(params, tables, row, ACCESSES);
        }
    }
    tally.end(tables);
}
