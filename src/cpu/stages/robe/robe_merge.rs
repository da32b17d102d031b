//! CPU mirror of `shaders/robe/robe_merge.wgsl`: sums the chunks of starts with many chunks.

use crate::{
    cpu::stages::cached::gradients::CHUNK,
    host::spread::each_row,
    record::rows::gradients::Gradient as _,
    robe::UNCOVERED,
    scaler::GradSlice,
    table::abi::{Params, Robe, Target},
};

/// The gradients that a backward sums. Twin of `shaders/shared/robe_sum.wgsl`.
#[derive(Clone, Copy)]
pub(crate) struct Gradients<'a> {
    pub(crate) params: &'a Params,
    pub(crate) robe: &'a Robe,
    /// The first gradient and the coefficient of each chunk, sorted by first weight.
    pub(crate) accesses: &'a [[u32; 2]],
    pub(crate) grad_outputs: GradSlice<'a>,
    /// Every gradient is multiplied with this: 1 / scale.
    pub(crate) inverse: f32,
}

/// The sum of some chunks at one of their weights.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum {
    pub(crate) value: f32,
    /// Number of chunks that reach the weight.
    pub(crate) chunks: u32,
}

impl Gradients<'_> {
    /// Number of weights of the chunk whose first gradient is `first`.
    fn reach(&self, first: u32) -> u32 {
        let Robe { dim, reach, tail, .. } = *self.robe;
        if tail < reach && first % dim + tail == dim { tail } else { reach }
    }

    /// Sums chunks, in sorted order, at their weight `e`.
    pub(crate) fn sum(&self, chunks: std::ops::Range<u32>, e: u32) -> Sum {
        let factors = self.params.has_factors();
        let mut sum = Sum::default();
        for &[first, coefficient] in &self.accesses[chunks.start as usize..chunks.end as usize] {
            if e >= self.reach(first) {
                continue;
            }
            let at = (first + e) as usize;
            let gradient = self.inverse
                * match self.grad_outputs {
                    GradSlice::F32(gradients) => gradients[at],
                    GradSlice::F16(gradients) => gradients[at].value(),
                };
            sum.value += if factors { f32::from_bits(coefficient) * gradient } else { gradient };
            sum.chunks += 1;
        }
        sum
    }

    /// Whether the caller's gradients say that no chunk covers weight `w`.
    pub(crate) fn is_uncovered(&self, w: u32) -> bool {
        matches!(self.grad_outputs, GradSlice::F32(all) if all[w as usize].to_bits() == UNCOVERED.to_bits())
    }

    /// Whether a start has so many chunks that they are summed in partial rows. A partial row has a sum for each
    /// weight, then the number of chunks that reach the last weight.
    pub(crate) fn heavy(one: &Target) -> bool {
        (one.end - one.start) as usize > CHUNK
    }
}

/// Sums each 32 chunks of the starts that have more than 32. Mirror of `shaders/robe/robe_merge.wgsl`.
pub(crate) fn robe_merge(
    params: &Params,
    robe: &Robe,
    targets: &[Target],
    segment: &[u32],
    accesses: &[[u32; 2]],
    grad_outputs: GradSlice<'_>,
    scratch: &mut [f32],
) {
    let width = params.dim as usize;
    let valid = targets[0].place as usize;
    let rows = 2 * valid.div_ceil(CHUNK);
    let gradients = Gradients { params, robe, accesses, grad_outputs, inverse: f32::from_bits(targets[0].end) };
    each_row(&mut scratch[..rows * width], width, valid * width, |row, sums| {
        let tile = row / 2 * CHUNK;
        let begins = row % 2 == 1;
        let at = if begins { (tile + CHUNK).min(valid) - 1 } else { tile };
        let one = targets[segment[at] as usize + 1];
        let (start, end) = (one.start as usize, one.end as usize);
        if !Gradients::heavy(&one) || (start >= tile) != begins {
            return;
        }
        let first = if begins { start } else { start + (tile - start).next_multiple_of(CHUNK) };
        if first >= end {
            return;
        }
        let chunks = first as u32..(first + CHUNK).min(end) as u32;
        for (e, sum) in (0..).zip(sums) {
            *sum = match e < robe.reach {
                true => gradients.sum(chunks.clone(), e).value,
                false => gradients.sum(chunks.clone(), robe.reach - 1).chunks as f32,
            };
        }
    });
}
