//! CPU mirror of `shaders/cached/merge.wgsl`: sums the chunks of heavy rows.

use std::{marker::PhantomData, ops::Range};

use crate::{
    host::{spread::each_row, trusted::prefetch},
    record::{
        of_params as record,
        rows::{
            gradients::{Gradient, Unscaled},
            payload::{Floats, Weights},
            sum::{Rows, sum_rows},
        },
    },
    scaler::GradSlice,
    table::layout::{MERGE_CHUNK, Params, Target},
};

/// Number of accesses in a chunk, and in a tile.
pub(crate) const CHUNK: usize = MERGE_CHUNK as usize;

/// The gradients that a backward sums. Twin of `shaders/shared/sum.wgsl`.
#[derive(Clone, Copy)]
pub(crate) struct Gradients<'a> {
    pub(crate) params: &'a Params,
    /// The output row and the factor of each access. With `factors`, the access in that list, and a word without meaning.
    pub(crate) accesses: &'a [[u32; 2]],
    /// The output rows and factors of accesses in another order; empty if `accesses` has them.
    pub(crate) factors: &'a [[u32; 2]],
    pub(crate) grad_outputs: GradSlice<'a>,
    /// Every gradient is multiplied with this: 1 / scale.
    pub(crate) inverse: f32,
}

impl Gradients<'_> {
    /// Sums the gradients of the sorted `accesses`, in order.
    pub(crate) fn sum(&self, accesses: Range<usize>, sums: &mut [f32]) {
        match self.grad_outputs {
            // The usual case: FP32 without a scale needs no multiplication.
            GradSlice::F32(grads) if self.inverse == 1.0 => self.sum_of::<Plain>(grads, accesses, sums),
            GradSlice::F32(grads) => self.sum_of::<Scaled<f32>>(grads, accesses, sums),
            GradSlice::F16(grads) => self.sum_of::<Scaled<u16>>(grads, accesses, sums),
        }
    }

    fn sum_of<K: Kind>(&self, grads: &[K::Stored], accesses: Range<usize>, sums: &mut [f32]) {
        let all = *self;
        if self.params.weighted == 1 || self.params.pooling == record::MEAN {
            sum_rows(&Outputs::<K, true> { all, grads }, accesses, sums);
        } else {
            sum_rows(&Outputs::<K, false> { all, grads }, accesses, sums);
        }
    }
}

/// A stored form of gradients, and how it is read.
trait Kind {
    type Stored;
    type Read<'a>: Weights
    where
        Self: 'a;
    fn read(gradients: &[Self::Stored], inverse: f32) -> Self::Read<'_>;
}

/// FP32 without a scale.
struct Plain;

/// FP32 or FP16 with a scale.
struct Scaled<G>(PhantomData<G>);

impl Kind for Plain {
    type Stored = f32;
    type Read<'a> = Floats<'a>;
    #[inline(always)]
    fn read(gradients: &[f32], _: f32) -> Floats<'_> {
        Floats(gradients)
    }
}

impl<G: Gradient + Copy> Kind for Scaled<G> {
    type Stored = G;
    type Read<'a>
        = Unscaled<'a, G>
    where
        Self: 'a;
    #[inline(always)]
    fn read(gradients: &[G], inverse: f32) -> Unscaled<'_, G> {
        Unscaled { gradients, inverse }
    }
}

/// The gradients of the accesses, times their coefficients if any coefficient is not 1.
struct Outputs<'a, K: Kind, const FACTORS: bool> {
    all: Gradients<'a>,
    grads: &'a [K::Stored],
}

impl<K: Kind, const FACTORS: bool> Outputs<'_, K, FACTORS> {
    #[inline(always)]
    fn access(&self, k: usize) -> [u32; 2] {
        let access = self.all.accesses[k];
        if self.all.factors.is_empty() { access } else { self.all.factors[access[0] as usize] }
    }

    #[inline(always)]
    fn of(&self, k: usize) -> &[K::Stored] {
        let dim = self.all.params.dim as usize;
        let [output, _] = self.access(k);
        &self.grads[output as usize * dim..][..dim]
    }
}

impl<K: Kind, const FACTORS: bool> Rows for Outputs<'_, K, FACTORS> {
    type Weights<'a>
        = K::Read<'a>
    where
        Self: 'a;
    const FACTORS: bool = FACTORS;

    #[inline(always)]
    fn row(&self, k: usize) -> Option<K::Read<'_>> {
        Some(K::read(self.of(k), self.all.inverse))
    }

    #[inline(always)]
    fn factor(&self, k: usize) -> f32 {
        f32::from_bits(self.access(k)[1])
    }

    #[inline(always)]
    fn prefetch<const N: usize>(&self, k: usize) {
        if k < self.all.accesses.len() {
            prefetch(self.of(k));
        }
    }
}

/// Sums each chunk of the heavy rows' gradients. Mirror of `shaders/cached/merge.wgsl`.
pub fn merge(
    params: &Params,
    targets: &[Target],
    segment: &[u32],
    accesses: &[[u32; 2]],
    grad_outputs: GradSlice<'_>,
    scratch: &mut [f32],
) {
    let dim = params.dim as usize;
    let valid = targets[0].place as usize;
    let rows = 2 * valid.div_ceil(CHUNK);
    let inverse = f32::from_bits(targets[0].end);
    let gradients = Gradients { params, accesses: &accesses[..valid], factors: &[], grad_outputs, inverse };
    let partials = &mut record::partials(params, scratch)[..rows * dim];
    each_row(partials, dim, valid * dim, |row, sums| {
        let tile = row / 2 * CHUNK;
        let begins = row % 2 == 1;
        let at = if begins { (tile + CHUNK).min(valid) - 1 } else { tile };
        let one = targets[segment[at] as usize + 1];
        let (start, end) = (one.start as usize, one.end as usize);
        if end - start <= CHUNK || (start >= tile) != begins {
            return;
        }
        let first = if begins { start } else { start + (tile - start).next_multiple_of(CHUNK) };
        if first < end {
            gradients.sum(first..(first + CHUNK).min(end), sums);
        }
    });
}
