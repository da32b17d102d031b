//! A row updated within its packed record.

use multiversion::multiversion;

use crate::{
    record::{
        codec::Noise,
        rows::{
            optimise::{Rule, moved},
            pack::pack_finite,
            unpack::unpack_row,
        },
    },
    table::row::RowLayout,
};

/// Updates a row in its record by its gradient: unpacks, moves and packs it in one pass, so that only record and
/// gradient go through memory. The bits are those of `unpack`, `optimise` and `pack` in turn. Returns false and leaves
/// the record untouched if a value is not finite or the row's range overflows. `room` is a buffer for one row, reused
/// from call to call.
#[multiversion(targets = "simd")]
pub fn move_record(
    layout: &RowLayout,
    rule: &Rule,
    noise: &Noise,
    row: u32,
    grads: &[f32],
    record: &mut [u32],
    room: &mut Vec<f32>,
) -> bool {
    move_record_row(layout, rule, noise, row, grads, record, room)
}

#[inline(always)]
pub(crate) fn move_record_row(
    layout: &RowLayout,
    rule: &Rule,
    noise: &Noise,
    row: u32,
    grads: &[f32],
    record: &mut [u32],
    room: &mut Vec<f32>,
) -> bool {
    room.resize(layout.row_words as usize, 0.0);
    let (weights, states) = room.split_at_mut(layout.dim as usize);
    unpack_row(layout, record, weights, states);
    moved(rule, grads, weights, states) && pack_finite(layout, noise, row, weights, states, record)
}
