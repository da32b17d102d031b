//! A row updated and packed.

use multiversion::multiversion;

use crate::{
    record::{
        codec::Noise,
        rows::{
            optimise::{Rule, moved},
            pack::pack_finite,
        },
    },
    table::row::RowLayout,
};

/// Moves a row by its gradient and packs it into its record in one pass. `before` has the row's weights, then its
/// state. The bits are those of `optimise` and `pack` in turn. Returns false and leaves the record untouched if a value
/// is not finite or the row's range overflows. `room` is a buffer for one row, reused from call to call.
#[multiversion(targets = "simd")]
pub fn pack_moved(
    layout: &RowLayout,
    rule: &Rule,
    noise: &Noise,
    row: u32,
    grads: &[f32],
    before: &[f32],
    record: &mut [u32],
    room: &mut Vec<f32>,
) -> bool {
    pack_moved_row(layout, rule, noise, row, grads, before, record, room)
}

#[inline(always)]
pub(crate) fn pack_moved_row(
    layout: &RowLayout,
    rule: &Rule,
    noise: &Noise,
    row: u32,
    grads: &[f32],
    before: &[f32],
    record: &mut [u32],
    room: &mut Vec<f32>,
) -> bool {
    room.clear();
    room.extend_from_slice(before);
    let (weights, states) = room.split_at_mut(layout.dim as usize);
    moved(rule, grads, weights, states) && pack_finite(layout, noise, row, weights, states, record)
}
