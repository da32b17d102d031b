//! The pooling of a forward. Twin of `shaders/shared/pool.wgsl`.

use std::ops::Range;

use crate::table::abi::{NONE, POOL_NONE, Params};

/// The bags of a batch.
#[derive(Clone, Copy)]
pub(crate) struct Bags<'a> {
    pub(crate) params: &'a Params,
    pub(crate) offsets: &'a [u32],
    /// For each index, the place of its row, or [`NONE`].
    pub(crate) places: &'a [u32],
    /// A weight for each index; empty if the batch has none.
    pub(crate) weights: &'a [f32],
}

impl Bags<'_> {
    pub(crate) fn mean(&self) -> bool {
        self.params.averages()
    }

    /// The weight of an index, in a batch with weights.
    pub(crate) fn weight(&self, i: usize) -> Option<f32> {
        (self.params.weighted == 1).then(|| self.weights[i])
    }

    /// Number of output rows.
    pub(crate) fn outputs(&self) -> usize {
        (if self.params.pooling == POOL_NONE { self.params.indices } else { self.params.bags }) as usize
    }

    /// The indices of an output row.
    pub(crate) fn of(&self, output: usize) -> Range<usize> {
        if self.params.pooling == POOL_NONE {
            return output..output + 1;
        }
        let first = self.offsets[output].min(self.params.indices);
        first as usize..self.offsets[output + 1].clamp(first, self.params.indices) as usize
    }

    /// The factor of an output row's sum.
    pub(crate) fn scale(&self, output: usize) -> f32 {
        if !self.mean() {
            return 1.0;
        }
        let valid = self.places[self.of(output)].iter().filter(|&&place| place != NONE).count();
        1.0 / valid.max(1) as f32
    }

    /// Writes the coefficient of each index, for the backward, where it is not 1.
    pub(crate) fn coefficients(&self, access: &mut [[u32; 2]]) {
        if self.params.weighted == 0 && !self.mean() {
            return;
        }
        for output in 0..self.outputs() {
            let scale = self.scale(output);
            for i in self.of(output) {
                access[i][1] = self.weight(i).map_or(scale, |weight| scale * weight).to_bits();
            }
        }
    }
}
