//! CPU mirror of `shaders/cached/gather.wgsl`: pools bags; a workgroup writes several output rows.

use crate::{
    cpu::stages::cached::bags::Bags,
    host::{
        spread::each_row,
        trusted::{AHEAD, prefetch},
    },
    record::{
        of_params as record,
        rows::{
            payload::{Floats, Weights as _},
            sum::{Rows, sum_rows},
        },
    },
    table::layout::{NONE, POOL_NONE, Params},
};

/// Reads the rows of each bag in bag order and pools them (SPEC 3, step 6). Mirror of `shaders/cached/gather.wgsl`.
pub fn gather(
    params: &Params,
    offsets: &[u32],
    places: &[u32],
    weights: &[f32],
    cache: &[f32],
    scratch: &[f32],
    access: &mut [[u32; 2]],
    outputs: &mut [f32],
) {
    let dim = params.dim as usize;
    let bags = Bags { params, offsets, places, weights };
    bags.coefficients(access);
    let floats = params.indices as usize * dim;
    let placed = Placed::new(params, places, cache, scratch);
    each_row(&mut outputs[..bags.outputs() * dim], dim, floats, |output, row| {
        if params.pooling == POOL_NONE {
            return placed.copy(output, bags.weight(output), row);
        }
        if params.weighted == 1 {
            sum_rows(&Weighted { placed: &placed, weights }, bags.of(output), row);
        } else {
            sum_rows(&placed, bags.of(output), row);
        }
        if bags.mean() {
            let scale = bags.scale(output);
            row.iter_mut().for_each(|sum| *sum *= scale);
        }
    });
}

/// Rows at the places that the forward decided.
pub(crate) struct Placed<'a> {
    slots: u32,
    dim: usize,
    /// Floats from one row to the next.
    words: usize,
    places: &'a [u32],
    cache: &'a [f32],
    scratch: &'a [f32],
}

impl<'a> Placed<'a> {
    pub(crate) fn new(params: &Params, places: &'a [u32], cache: &'a [f32], scratch: &'a [f32]) -> Self {
        let (dim, words) = (params.dim as usize, record::slot_words(params));
        Self { slots: params.slots, dim, words, places: &places[..params.indices as usize], cache, scratch }
    }
}

impl Placed<'_> {
    /// The row at a place.
    #[inline(always)]
    pub(crate) fn at(&self, place: u32) -> Option<&[f32]> {
        if place == NONE {
            return None;
        }
        let (from, at) = if place >= self.slots { (self.scratch, place - self.slots) } else { (self.cache, place) };
        Some(&from[at as usize * self.words..][..self.dim])
    }

    /// Copies a single row: adding it to 0 would turn its negative zeros positive.
    fn copy(&self, i: usize, weight: Option<f32>, to: &mut [f32]) {
        if let Some(&next) = self.places.get(i + AHEAD) {
            self.prefetch::<1>(i + AHEAD, next);
        }
        match (self.at(self.places[i]), weight) {
            (None, _) => to.fill(0.0),
            (Some(row), None) => to.copy_from_slice(row),
            (Some(row), Some(weight)) => to.iter_mut().zip(row).for_each(|(to, value)| *to = value * weight),
        }
    }
}

impl Rows for Placed<'_> {
    type Name = u32;
    /// The first column.
    type Columns = usize;
    const FACTORS: bool = false;

    #[inline(always)]
    fn names(&self) -> &[u32] {
        self.places
    }

    #[inline(always)]
    fn columns(&self, at: usize, _: usize) -> usize {
        at
    }

    #[inline(always)]
    fn row<const N: usize>(&self, at: usize, _: usize, place: u32) -> Option<[f32; N]> {
        self.at(place).map(|row| Floats(row).some(at))
    }

    #[inline(always)]
    fn factor(&self, _: usize, _: u32) -> f32 {
        1.0
    }

    #[inline(always)]
    fn prefetch<const N: usize>(&self, _: usize, place: u32) {
        if let Some(row) = self.at(place) {
            prefetch(row);
        }
    }
}

/// The rows of [`Placed`], each with a weight.
struct Weighted<'a> {
    placed: &'a Placed<'a>,
    weights: &'a [f32],
}

impl Rows for Weighted<'_> {
    type Name = u32;
    type Columns = usize;
    const FACTORS: bool = true;

    #[inline(always)]
    fn names(&self) -> &[u32] {
        self.placed.places
    }

    #[inline(always)]
    fn columns(&self, at: usize, n: usize) -> usize {
        self.placed.columns(at, n)
    }

    #[inline(always)]
    fn row<const N: usize>(&self, at: usize, k: usize, place: u32) -> Option<[f32; N]> {
        self.placed.row(at, k, place)
    }

    #[inline(always)]
    fn factor(&self, k: usize, _: u32) -> f32 {
        self.weights[k]
    }

    #[inline(always)]
    fn prefetch<const N: usize>(&self, k: usize, place: u32) {
        self.placed.prefetch::<N>(k, place);
    }
}
