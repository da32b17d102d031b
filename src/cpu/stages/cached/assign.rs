//! CPU mirror of `shaders/cached/assign.wgsl`: writes the caller's values to rows.

use crate::{
    cpu::stages::cached::tables::{count, counter::SKIPPED_ROWS, table_of},
    host::disjoint::each_target,
    record::of_params as record,
    table::layout::{DIRTY, Field, Move, NONE, Params, way_at},
};

/// Replaces the weights of the listed rows with the caller's values. Mirror of `shaders/cached/assign.wgsl`.
pub fn assign(
    params: &Params,
    keys: &[u32],
    places: &[u32],
    values: &[f32],
    cache: &mut [f32],
    scratch: &mut [f32],
    ways: &mut [u32],
    moves: &mut [Move],
    tables: &mut [u32],
) {
    let n = params.indices as usize;
    let (dim, words) = (params.dim as usize, record::slot_words(params));
    let set = |i: usize, row: &mut [f32]| {
        let values = &values[i * dim..][..dim];
        let finite = values.iter().all(|x| x.is_finite());
        if finite {
            row[..dim].copy_from_slice(values);
        }
        finite
    };
    let width = params.ways();
    let slot_of = |i: usize| (places[i] < params.slots).then_some(places[i] as usize);
    let scratch_of = |i: usize| places[i].checked_sub(params.slots).map(|at| at as usize);
    each_target(cache, words, 0..n, slot_of, set, |i, taken| {
        if taken {
            ways[way_at(width, places[i], Field::Flags)] |= DIRTY;
        } else {
            count(tables, table_of(params, tables, keys[i]), SKIPPED_ROWS, 1);
        }
    });
    each_target(scratch, words, 0..n, scratch_of, set, |i, taken| {
        // The look-up made a Move for each missing row. This Move replaces it.
        let place = if taken { places[i] } else { NONE };
        moves[(places[i] - params.slots) as usize] = Move { place, row: NONE, victim: keys[i], flags: Move::WRITE };
        if !taken {
            count(tables, table_of(params, tables, keys[i]), SKIPPED_ROWS, 1);
        }
    });
}
