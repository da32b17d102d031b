//! CPU mirror of `shaders/scaler/inspect.wgsl`: finds the greatest magnitude among scaled gradients.

use half::f16;
use rayon::prelude::*;

use crate::{record::rows::gradients::magnitude_of_half, scaler::GradSlice};

/// Number of gradients that a thread inspects at once.
const PIECE: usize = 1 << 15;

/// Writes the largest magnitude among scaled gradients, as bits, to `greatest[0]`. Mirror of
/// `shaders/scaler/inspect.wgsl`.
pub(crate) fn inspect(gradients: GradSlice<'_>, greatest: &mut [u32]) {
    let found = match gradients {
        GradSlice::F32(values) => {
            let of = |piece: &[f32]| piece.iter().map(|x| x.to_bits() & 0x7fff_ffff).max();
            values.par_chunks(PIECE).filter_map(of).max()
        }
        GradSlice::F16(values) => {
            let of = |piece: &[f16]| piece.iter().map(|h| h.to_bits() & 0x7fff).max();
            values.par_chunks(PIECE).filter_map(of).max().map(magnitude_of_half)
        }
    };
    greatest[0] = greatest[0].max(found.unwrap_or(0));
}
