//! The gradients that a backward sums. Twin of `shaders/shared/sum.wgsl`.

use std::{marker::PhantomData, ops::Range};

use half::f16;

use crate::{
    host::trusted::{self, AHEAD},
    record::rows::{
        gradients::{Gradient, Unscaled},
        payload::{Floats, Weights},
        sum::{Rows, add, prefetch_row, sum_rows},
    },
    scaler::GradSlice,
    table::abi::{MERGE_CHUNK, Params},
};

/// Number of accesses in a chunk, and in a tile.
pub(crate) const CHUNK: usize = MERGE_CHUNK as usize;

/// The gradients that a backward sums.
#[derive(Clone, Copy)]
pub(crate) struct Gradients<'a> {
    pub(crate) params: &'a Params,
    /// The output row and the factor of each access. With `factors`, the access in that list, and its row. In a cached table without
    /// factors, the output row and the row.
    pub(crate) accesses: &'a [[u32; 2]],
    /// The output rows and factors of accesses in another order; empty if `accesses` has them.
    pub(crate) factors: &'a [[u32; 2]],
    pub(crate) grad_outputs: GradSlice<'a>,
    /// The number of output rows with gradients: a division for each row would cost a tenth of its sum.
    pub(crate) outputs: usize,
    /// Every gradient is multiplied with this: 1 / scale.
    pub(crate) inverse: f32,
}

impl Gradients<'_> {
    /// Sums the gradients of the sorted `accesses`, in order.
    pub(crate) fn sum(&self, accesses: Range<usize>, sums: &mut [f32]) {
        match self.grad_outputs {
            // Most rows are met once: a sum takes longer to begin than to add. It adds to 0, which leaves no negative zero.
            GradSlice::F32(grads) if self.inverse == 1.0 && self.factors.is_empty() && accesses.len() == 1 => {
                let dim = sums.len();
                if let Some(&[next, _]) = self.accesses.get(accesses.start + AHEAD) {
                    prefetch_row(grads, next as usize * dim, dim, 0);
                }
                let gradients = &grads[self.accesses[accesses.start][0] as usize * dim..][..dim];
                sums.iter_mut().zip(gradients).for_each(|(sum, g)| *sum = 0.0 + g);
            }
            // The usual case: FP32 without a scale needs no multiplication.
            GradSlice::F32(grads) if self.inverse == 1.0 => self.sum_of::<Plain>(grads, accesses, sums),
            GradSlice::F32(grads) => self.sum_of::<Scaled<f32>>(grads, accesses, sums),
            GradSlice::F16(grads) => self.sum_of::<Scaled<f16>>(grads, accesses, sums),
        }
    }

    fn sum_of<K: Kind>(&self, grads: &[K::Stored], accesses: Range<usize>, sums: &mut [f32]) {
        let all = *self;
        if self.params.has_factors() {
            sum_rows(&Outputs::<K, true> { all, grads }, accesses, sums);
        } else {
            sum_rows(&Outputs::<K, false> { all, grads }, accesses, sums);
        }
    }
}

/// A stored form of gradients, and how it is read.
trait Kind {
    type Stored: Copy;
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
    fn access(&self, access: [u32; 2]) -> [u32; 2] {
        if self.all.factors.is_empty() { access } else { self.all.factors[access[0] as usize] }
    }
}

impl<'a, K: Kind, const FACTORS: bool> Rows for Outputs<'a, K, FACTORS> {
    type Name = [u32; 2];
    type Columns = trusted::Columns<'a, K::Stored>;
    const FACTORS: bool = FACTORS;

    #[inline(always)]
    fn names(&self) -> &[[u32; 2]] {
        self.all.accesses
    }

    #[inline(always)]
    fn columns(&self, at: usize, n: usize) -> Self::Columns {
        let dim = self.all.params.dim as usize;
        trusted::Columns::new(self.grads, self.all.outputs, dim, at, n)
    }

    #[inline(always)]
    fn add<const N: usize>(&self, columns: Self::Columns, k: usize, access: [u32; 2], total: &mut [f32; N]) {
        let [output, _] = self.access(access);
        let Some(gradients) = columns.of(output) else { panic!("an output row beyond the last gradient") };
        add(self, k, access, K::read(gradients, self.all.inverse).some(0), total);
    }

    #[inline(always)]
    fn factor(&self, _: usize, access: [u32; 2]) -> f32 {
        f32::from_bits(self.access(access)[1])
    }

    #[inline(always)]
    fn prefetch<const N: usize>(&self, _: usize, access: [u32; 2]) {
        let dim = self.all.params.dim as usize;
        let at = (self.access(access)[0] as usize).wrapping_mul(dim);
        prefetch_row(self.grads, at, dim, N * size_of::<K::Stored>());
    }
}
