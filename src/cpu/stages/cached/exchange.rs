//! CPU mirror of `shaders/cached/exchange.wgsl`: moves rows between table and FP32, shard by shard.

use crate::{
    cpu::stages::cached::tables::{
        count,
        counter::{BYPASS_READS, BYPASS_WRITES, SKIPPED_ROWS, WRITE_BACKS},
        table_of,
    },
    host::{
        disjoint::each_target,
        trusted::{AHEAD, prefetch},
    },
    record::{of_params as record, of_params::MODE_TRAIN, rows},
    table::layout::{COMING, DIRTY, Field, Move, NONE, Params, Shard, Step, count as counts, way_at},
};

/// Moves rows between the records of one shard and FP32 (SPEC 3, step 5). Mirror of `shaders/cached/exchange.wgsl`.
pub fn exchange(
    params: &Params,
    shard: &Shard,
    step: &Step,
    moves: &[Move],
    records: &mut [u32],
    cache: &mut [f32],
    scratch: &mut [f32],
    ways: &mut [u32],
    tables: &mut [u32],
) {
    let moves = &moves[..step.counts[counts::MOVES] as usize];
    let width = params.ways();
    if shard.phases & Shard::PACK != 0 {
        let leaves = |one: &Move| one.place != NONE && one.flags & Move::WRITE != 0 && shard.holds(one.victim);
        let victim_of = |i: usize| {
            let one = &moves[i];
            let stays = one.place < params.slots && ways[way_at(width, one.place, Field::Flags)] & DIRTY == 0;
            (leaves(one) && !stays).then_some((one.victim, one.place))
        };
        pack_rows(params, shard, step.t, 0..moves.len(), victim_of, records, cache, scratch, tables, |tables, i| {
            if params.mode == MODE_TRAIN {
                let counter = if moves[i].place >= params.slots { BYPASS_WRITES } else { WRITE_BACKS };
                count(tables, table_of(params, tables, moves[i].victim), counter, 1);
            }
        });
        for one in moves.iter().filter(|one| one.place < params.slots && leaves(one)) {
            ways[way_at(width, one.place, Field::Flags)] &= !DIRTY;
        }
    }
    if shard.phases & Shard::UNPACK != 0 {
        let layout = record::row(params);
        let (words, record_words) = (record::slot_words(params), params.record_words as usize);
        let record = |linear: u32| &records[(linear - shard.first_row) as usize * record_words..][..record_words];
        let unpack = |i: usize, linear: u32, row: &mut [f32]| {
            if let Some(next) = moves.get(i + AHEAD).filter(|next| shard.holds(next.row)) {
                prefetch(record(next.row));
            }
            let (weights, rest) = row.split_at_mut(layout.dim as usize);
            let (states, padding) = rest.split_at_mut(layout.state as usize);
            rows::unpack(&layout, record(linear), weights, states);
            padding.fill(0.0);
        };
        let comes = |i: usize| moves[i].place != NONE && shard.holds(moves[i].row);
        let slot_of = |i: usize| (comes(i) && moves[i].place < params.slots).then_some(moves[i].place as usize);
        each_target(
            cache,
            words,
            0..moves.len(),
            slot_of,
            |i, row| unpack(i, moves[i].row, row),
            |i, ()| {
                let slot = |field| way_at(width, moves[i].place, field);
                if ways[slot(Field::Flags)] & COMING != 0 {
                    ways[slot(Field::Tag)] = moves[i].row;
                    ways[slot(Field::Stamp)] = step.t;
                    ways[slot(Field::Flags)] &= !COMING;
                }
            },
        );
        // Scratch of a bypassed row. A row that lost its slot and is used by this batch goes to the scratch of its own
        // Move.
        let kept =
            |i: usize| moves[i].flags & Move::KEEP != 0 && moves[i].place != NONE && shard.holds(moves[i].victim);
        let row_of = |i: usize| if kept(i) { moves[i].victim } else { moves[i].row };
        let scratch_of = |i: usize| match moves[i].place.checked_sub(params.slots) {
            _ if kept(i) => Some(i),
            Some(at) if comes(i) => Some(at as usize),
            _ => None,
        };
        each_target(
            scratch,
            words,
            0..moves.len(),
            scratch_of,
            |i, row| unpack(i, row_of(i), row),
            |i, ()| {
                if params.mode == MODE_TRAIN {
                    count(tables, table_of(params, tables, row_of(i)), BYPASS_READS, 1);
                }
            },
        );
    }
}

/// Packs the FP32 rows of `items`: `from` gives the linear row and the place of an item. Rows of other shards are
/// skipped. A row that cannot be packed is counted; `done` is called for the others. Twin of
/// `shaders/shared/pack.wgsl`.
fn pack_rows(
    params: &Params,
    shard: &Shard,
    t: u32,
    items: std::ops::Range<usize>,
    from: impl Fn(usize) -> Option<(u32, u32)> + Sync,
    records: &mut [u32],
    cache: &[f32],
    scratch: &[f32],
    tables: &mut [u32],
    done: impl Fn(&mut [u32], usize),
) {
    let layout = record::row(params);
    let noise = record::noise(params, t);
    let words = record::slot_words(params);
    let of = |i: usize| from(i).filter(|&(row, _)| shard.holds(row));
    let row_at = |place: u32| {
        let (from, place) = if place >= params.slots { (scratch, place - params.slots) } else { (cache, place) };
        &from[place as usize * words..][..layout.row_words as usize]
    };
    let end = items.end;
    let pack = |i: usize, record: &mut [u32]| {
        let Some((linear, place)) = of(i) else { return false };
        if let Some((_, next)) = Some(i + AHEAD).filter(|&next| next < end).and_then(of) {
            prefetch(row_at(next));
        }
        let row = row_at(place);
        let (weights, state) = row.split_at(params.dim as usize);
        rows::pack(&layout, &noise, linear, weights, state, record)
    };
    let record_of = |i: usize| of(i).map(|(row, _)| (row - shard.first_row) as usize);
    each_target(records, params.record_words as usize, items, record_of, pack, |i, packed| match of(i) {
        Some((row, _)) if !packed => count(tables, table_of(params, tables, row), SKIPPED_ROWS, 1),
        _ => done(tables, i),
    });
}
