use std::ops::Range;

use super::{
    record,
    rows::{Floats, Rows, prefetch, sum_rows},
    spread::each_row,
};
use crate::layout::{Params, Target};

/// Accesses of a chunk, and of a tile.
pub(super) const CHUNK: usize = 128;

/// What the sums of a backward read: the twins of `shaders/shared/sum.wgsl`.
#[derive(Clone, Copy)]
pub(super) struct Gradients<'a> {
    pub(super) params: &'a Params,
    pub(super) accesses: &'a [[u32; 2]],
    pub(super) grad_outputs: &'a [f32],
}

impl Gradients<'_> {
    /// The gradients of sorted accesses, in order.
    pub(super) fn sum(&self, accesses: Range<usize>, sums: &mut [f32]) {
        if self.params.weighted == 1 || self.params.pooling == record::MEAN {
            sum_rows(&Scaled::<true>(*self), accesses, sums);
        } else {
            sum_rows(&Scaled::<false>(*self), accesses, sums);
        }
    }
}

/// The gradients, times their coefficients where there are any but 1.
struct Scaled<'a, const FACTORS: bool>(Gradients<'a>);

impl<const FACTORS: bool> Rows for Scaled<'_, FACTORS> {
    type Weights<'a>
        = Floats<'a>
    where
        Self: 'a;
    const FACTORS: bool = FACTORS;

    #[inline(always)]
    fn row(&self, k: usize) -> Option<Floats<'_>> {
        let dim = self.0.params.dim as usize;
        let [output, _] = self.0.accesses[k];
        Some(Floats(&self.0.grad_outputs[output as usize * dim..][..dim]))
    }

    #[inline(always)]
    fn factor(&self, k: usize) -> f32 {
        f32::from_bits(self.0.accesses[k][1])
    }

    #[inline(always)]
    fn prefetch(&self, k: usize) {
        if k < self.0.accesses.len()
            && let Some(Floats(grad)) = self.row(k)
        {
            prefetch(grad);
        }
    }
}

/// Sums each chunk of the heavy rows' gradients. Mirror of `shaders/merge.wgsl`.
pub fn merge(
    params: &Params,
    targets: &[Target],
    segment: &[u32],
    accesses: &[[u32; 2]],
    grad_outputs: &[f32],
    scratch: &mut [f32],
) {
    let dim = params.dim as usize;
    let valid = targets[0].place as usize;
    let rows = 2 * valid.div_ceil(CHUNK);
    let gradients = Gradients { params, accesses: &accesses[..valid], grad_outputs };
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
