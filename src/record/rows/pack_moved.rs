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

/// Moves a row by its gradient and packs it into its record in one pass. `floats` has the row's weights, then its
/// state; the call overwrites them. The bits are those of `optimise` and `pack` in turn. Returns false and leaves the
/// record untouched if a value is not finite or the row's range overflows.
#[multiversion(targets = "simd")]
pub fn pack_moved(
    layout: &RowLayout,
    rule: &Rule,
    noise: &Noise,
    row: u32,
    grads: &[f32],
    floats: &mut [f32],
    record: &mut [u32],
) -> bool {
    pack_moved_row(layout, rule, noise, row, grads, floats, record)
}

#[inline(always)]
pub(crate) fn pack_moved_row(
    layout: &RowLayout,
    rule: &Rule,
    noise: &Noise,
    row: u32,
    grads: &[f32],
    floats: &mut [f32],
    record: &mut [u32],
) -> bool {
    let (weights, states) = floats.split_at_mut(layout.dim as usize);
    moved(rule, grads, weights, states) && pack_finite(layout, noise, row, weights, states, record)
}
