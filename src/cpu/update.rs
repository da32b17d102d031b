use std::cell::RefCell;

use super::{
    disjoint::each_target,
    exchange::pack_rows,
    merge::{CHUNK, Gradients},
    record, rows,
    tables::{
        count,
        counter::{BYPASS_WRITES, SKIPPED_ROWS},
        table_of,
    },
};
use crate::layout::{Field, Params, Shard, Target, quad_width, way_at};

/// A thread's room for one row.
#[derive(Default)]
struct Room {
    /// The sum of its gradients.
    grads: Vec<f32>,
    /// What it was before its update.
    before: Vec<f32>,
}

thread_local! {
    static ROOM: RefCell<Room> = RefCell::default();
}

/// The optimiser, once for each distinct row: the resident ones with the first shard, the bypassed ones with their record's. Mirror of
/// `shaders/update.wgsl`.
pub fn update(
    params: &Params,
    shard: &Shard,
    targets: &[Target],
    accesses: &[[u32; 2]],
    grad_outputs: &[f32],
    records: &mut [u32],
    cache: &mut [f32],
    scratch: &mut [f32],
    ways: &mut [u32],
    tables: &mut [u32],
) {
    let (totals, targets) = (targets[0], &targets[1..][..targets[0].row as usize]);
    let accesses = &accesses[..totals.place as usize];
    let (dim, words) = (params.dim as usize, record::slot_words(params));
    let (scratch, partials) = scratch.split_at_mut(params.partials as usize * quad_width(params.dim) as usize);
    let gradients = Gradients { params, accesses, grad_outputs };
    let rule = record::rule(params);
    let width = params.ways();
    let move_row = |u: usize, row: &mut [f32]| {
        let (start, end) = (targets[u].start as usize, targets[u].end as usize);
        let (weights, rest) = row.split_at_mut(dim);
        let states = &mut rest[..params.state as usize];
        ROOM.with_borrow_mut(|Room { grads, before }| {
            if end - start > CHUNK {
                let sum = &partials[(2 * (start / CHUNK) + 1) * dim..][..dim];
                return rows::optimise(&rule, sum, weights, states, before);
            }
            grads.resize(dim, 0.0);
            gradients.sum(start..end, grads);
            rows::optimise(&rule, grads, weights, states, before)
        })
    };
    let resident = |u: usize| targets[u].place < params.slots;
    let slot_of = |u: usize| (shard.first_row == 0 && resident(u)).then_some(targets[u].place as usize);
    each_target(cache, words, 0..targets.len(), slot_of, move_row, |u, moved| {
        if moved {
            ways[way_at(width, targets[u].place, Field::Dirty)] = 1;
        } else {
            count(tables, table_of(params, tables, targets[u].row), SKIPPED_ROWS, 1);
        }
    });
    let bypassed = |u: usize| !resident(u) && shard.holds(targets[u].row);
    let scratch_of = |u: usize| bypassed(u).then(|| (targets[u].place - params.slots) as usize);
    let mut taken = vec![false; targets.len()];
    each_target(scratch, words, 0..targets.len(), scratch_of, move_row, |u, moved| {
        taken[u] = moved;
        if !moved {
            count(tables, table_of(params, tables, targets[u].row), SKIPPED_ROWS, 1);
        }
    });
    let packs = |u: usize| taken[u].then_some((targets[u].row, targets[u].place));
    pack_rows(params, shard, totals.start, 0..targets.len(), packs, records, cache, scratch, tables, |tables, u| {
        count(tables, table_of(params, tables, targets[u].row), BYPASS_WRITES, 1);
    });
}
