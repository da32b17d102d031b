//! Packed records to FP32 rows, vectorised.

use multiversion::multiversion;

use crate::{
    record::{
        codec::{coded, f32_from_moment},
        rows::{
            half::widen,
            payload::{Format, Weights as _, by_format},
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
    } else if layout.state_bits == 16 && layout.moments {
        let halves: &[u16] = bytemuck::cast_slice(from);
        let (first, second) = states.split_at_mut(layout.dim as usize);
        let (first_halves, second_halves) = halves.split_at(first.len());
        first.iter_mut().zip(first_halves).for_each(|(x, &h)| *x = f32_from_moment(h.into(), false));
        second.iter_mut().zip(second_halves).for_each(|(x, &h)| *x = f32_from_moment(h.into(), true));
    } else if layout.state_bits == 16 {
        let halves: &[u16] = bytemuck::cast_slice(from);
        states.iter_mut().zip(halves).for_each(|(x, &h)| *x = widen(h));
    } else {
        states.iter_mut().zip(from).for_each(|(x, &word)| *x = f32::from_bits(word));
    }
}

#[inline(always)]
fn unpack_weights<F: Format>(layout: &RowLayout, record: &[u32], row: &mut [f32]) {
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
fn columns<F: Format, const N: usize>(weights: F::Weights<'_>, row: &mut [f32], at: usize) {
    row[at..at + N].copy_from_slice(&weights.some::<N>(at));
}
