//! CPU mirror of `shaders/cached/update.wgsl`: updates the distinct rows, shard by shard.

use std::cell::RefCell;

use crate::{
    cpu::stages::cached::{
        merge::{CHUNK, Gradients},
        tables::{
            Tally,
            counter::{BYPASS_WRITES, SKIPPED_ROWS},
        },
    },
    host::{
        disjoint::each_target,
        trusted::{AHEAD, prefetch},
    },
    record::{of_params as record, rows},
    scaler::GradSlice,
    table::{
        layout::{DIRTY, Field, Params, Rate, Shard, Target, way_at},
        row::quad_width,
    },
};

/// A thread's buffers for one row.
#[derive(Default)]
struct Room {
    /// The sum of the row's gradients.
    grads: Vec<f32>,
    /// The updated row, or a copy of the row before its update.
    row: Vec<f32>,
}

thread_local! {
    static ROOM: RefCell<Room> = RefCell::default();
}

/// Runs the optimiser once for each distinct row: resident rows with the first shard, bypassed rows with the shard of
/// their record. Mirror of `shaders/cached/update.wgsl`, except that a bypassed row stays in scratch as it was.
pub fn update(
    params: &Params,
    shard: &Shard,
    targets: &[Target],
    accesses: &[[u32; 2]],
    grad_outputs: GradSlice<'_>,
    records: &mut [u32],
    cache: &mut [f32],
    scratch: &[f32],
    ways: &mut [u32],
    tables: &mut [u32],
    rate: &Rate,
) {
    let (totals, targets) = (targets[0], &targets[1..][..targets[0].row as usize]);
    let accesses = &accesses[..totals.place as usize];
    let (dim, words) = (params.dim as usize, record::slot_words(params));
    let partials = &scratch[params.partials as usize * quad_width(params.dim) as usize..];
    let gradients = Gradients { params, accesses, factors: &[], grad_outputs, inverse: f32::from_bits(totals.end) };
    let rule = record::rule(params, rate, totals.start);
    let width = params.ways();
    // Calls `work` with the sum of a row's gradients and a buffer for the row.
    let with_sum = |u: usize, work: &mut dyn FnMut(&[f32], &mut Vec<f32>) -> bool| {
        let (start, end) = (targets[u].start as usize, targets[u].end as usize);
        ROOM.with_borrow_mut(|Room { grads, row }| {
            if end - start > CHUNK {
                return work(&partials[(2 * (start / CHUNK) + 1) * dim..][..dim], row);
            }
            grads.resize(dim, 0.0);
            gradients.sum(start..end, grads);
            work(grads, row)
        })
    };
    let resident = |u: usize| targets[u].place < params.slots;
    let mut tally = Tally::default();
    if shard.first_row == 0 {
        let move_slot = |u: usize, slot: &mut [f32]| {
            let (weights, rest) = slot.split_at_mut(dim);
            let states = &mut rest[..params.state as usize];
            with_sum(u, &mut |grads, before| {
                before.resize(words, 0.0);
                rows::optimise(&rule, grads, weights, states, before)
            })
        };
        let slot_of = |u: usize| resident(u).then_some(targets[u].place as usize);
        each_target(cache, words, 0..targets.len(), slot_of, move_slot, |u, moved| {
            if moved {
                ways[way_at(width, targets[u].place, Field::Flags)] |= DIRTY;
            } else {
                tally.count(params, tables, targets[u].row, SKIPPED_ROWS);
            }
        });
    }
    // Forward has left the bypassed rows in scratch.
    let (layout, noise) = (record::row(params), record::noise(params, totals.start));
    let row_at = |place: u32| &scratch[(place - params.slots) as usize * words..][..layout.row_words as usize];
    let pack_row = |u: usize, record: &mut [u32]| {
        let next = targets.get(u + AHEAD).filter(|next| next.place >= params.slots && shard.holds(next.row));
        if let Some(next) = next {
            prefetch(row_at(next.place));
        }
        let Target { row, place, .. } = targets[u];
        with_sum(u, &mut |grads, room| {
            room.clear();
            room.extend_from_slice(row_at(place));
            rows::pack_moved(&layout, &rule, &noise, row, grads, room, record)
        })
    };
    let record_of = |u: usize| {
        let Target { row, .. } = targets[u];
        (!resident(u) && shard.holds(row)).then(|| (row - shard.first_row) as usize)
    };
    each_target(records, params.record_words as usize, 0..targets.len(), record_of, pack_row, |u, moved| {
        tally.count(params, tables, targets[u].row, if moved { BYPASS_WRITES } else { SKIPPED_ROWS });
    });
    tally.end(tables);
}
