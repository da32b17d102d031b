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
    table::layout::Layout,
};

/// Moves a row that is at home in its record by its gradient: unpacked, moved and packed again in one go, so that only the record and
/// the gradient go through memory. The bits of `unpack`, `optimise` and `pack` one after another. Returns false,
/// and leaves the record as it was, if a value is not finite or the row's range overflows. `room` is room for the row, to be used
/// again for the next.
#[multiversion(targets = "simd")]
pub fn move_record(
    layout: &Layout,
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
    layout: &Layout,
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
