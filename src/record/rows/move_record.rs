//! A row updated in its record.

use multiversion::multiversion;

use crate::{
    config::Precision,
    record::{
        codec::Noise,
        rows::{
            optimise::{RowStep, moved, optimise_row},
            pack::pack_finite,
            unpack::unpack_row,
        },
    },
    table::row::RowLayout,
};

/// Moves the row of a record by its gradient. `unpack`, `optimise` and `pack` in turn give the same bits. Returns false and leaves the
/// record untouched if a value is not finite or the row's range overflows. A record whose row does not change keeps its bytes. `room` is a buffer of [`RowLayout::row_words`] floats, whose
/// contents do not matter.
#[multiversion(targets = "simd")]
pub fn move_record(
    layout: &RowLayout,
    rule: &RowStep,
    noise: &Noise,
    row: u32,
    grads: &mut [f32],
    room: &mut [f32],
    record: &mut [u32],
) -> bool {
    move_record_in(layout, rule, noise, row, grads, room, record)
}

#[inline(always)]
pub(crate) fn move_record_in(
    layout: &RowLayout,
    rule: &RowStep,
    noise: &Noise,
    row: u32,
    grads: &mut [f32],
    room: &mut [f32],
    record: &mut [u32],
) -> bool {
    let (dim, state) = (layout.dim as usize, layout.state as usize);
    if layout.precision == Precision::Fp32 && (layout.scalars == 0 || layout.scalars == layout.state) {
        // A record is the state, then the weights, both as they are.
        let (states, weights) = bytemuck::cast_slice_mut(record).split_at_mut(state);
        return optimise_row(rule, grads, weights, states, room);
    }
    let (weights, states) = room.split_at_mut(dim);
    unpack_row(layout, record, weights, states);
    let (finite, changed) = moved(rule, grads, weights, states);
    finite && (!changed || pack_finite(layout, noise, row, weights, states, record))
}
