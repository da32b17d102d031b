//! Packed records to FP32 rows, vectorised.

use multiversion::multiversion;

use crate::{
    record::{
        codec::{coded, f32_from_moment},
        rows::{
            half::widen,
            payload::{Payload, Weights as _, by_format},
        },
    },
    table::row::RowLayout,
};

/// [`crate::record::codec::unpack`], computed fast: writes dim weights, then the state.
#[multiversion(targets = "simd")]
pub fn unpack(layout: &RowLayout, record: &[u32], weights: &mut [f32], states: &mut [f32]) {
    unpack_row(layout, record, weights, states);
}

#[inline(always)]
pub(crate) fn unpack_row(layout: &RowLayout, record: &[u32], weights: &mut [f32], states: &mut [f32]) {
    by_format!(layout.precision, F => unpack_weights::<F>(layout, record, weights));
    // Readers ask for weights only.
    if states.is_empty() {
        return;
    }
    let (scalars, from) = record[layout.state_word as usize..].split_at(layout.scalars as usize);
    let (states, own) = states.split_at_mut((layout.state - layout.scalars) as usize);
    own.iter_mut().zip(scalars).for_each(|(x, &word)| *x = f32::from_bits(word));
    if layout.state_bits == 8 {
        states.iter_mut().zip(0..).for_each(|(x, e)| *x = coded(layout, record, e));
    } else if layout.state_bits == 16 {
        let (dim, halves): (_, &[u16]) = (layout.dim as usize, bytemuck::cast_slice(from));
        for ((e, states), halves) in (0..).step_by(dim).zip(states.chunks_mut(dim)).zip(halves.chunks(dim)) {
            let (states, signed) = (states.iter_mut().zip(halves), layout.is_signed(e));
            match layout.is_moment(e) {
                true => states.for_each(|(x, &h)| *x = f32_from_moment(h.into(), signed)),
                false => states.for_each(|(x, &h)| *x = widen(h)),
            }
        }
    } else {
        states.iter_mut().zip(from).for_each(|(x, &word)| *x = f32::from_bits(word));
    }
}

#[inline(always)]
fn unpack_weights<F: Payload>(layout: &RowLayout, record: &[u32], row: &mut [f32]) {
    let weights = F::of(layout, record);
    let mut at = 0;
    while at + 64 <= row.len() {
        columns::<F, 64>(weights, row, at);
        at += 64;
    }
    while at + 8 <= row.len() {
        columns::<F, 8>(weights, row, at);
        at += 8;
    }
    while at < row.len() {
        columns::<F, 1>(weights, row, at);
        at += 1;
    }
}

#[inline(always)]
fn columns<F: Payload, const N: usize>(weights: F::Weights<'_>, row: &mut [f32], at: usize) {
    row[at..at + N].copy_from_slice(&weights.some::<N>(at));
}
