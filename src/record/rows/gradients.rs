//! Reads scaled gradients for a sum.

use half::f16;

use crate::record::rows::{half::widen, payload::Weights};

/// The magnitude of a half as the bits of a float, for infinity and NaN too.
pub(crate) fn magnitude_of_half(h: u16) -> u32 {
    any_half(h & 0x7fff).to_bits()
}

/// Converts a half that may be infinite or NaN. No record holds one, but a scaled gradient may.
#[inline(always)]
fn any_half(h: u16) -> f32 {
    let bits = widen(h).to_bits();
    f32::from_bits(if h & 0x7c00 == 0x7c00 { bits | 0x7f80_0000 } else { bits })
}

/// A gradient in its stored form, FP32 or FP16.
pub(crate) trait Gradient: Sized {
    /// The gradient as FP32.
    fn value(&self) -> f32;
}

impl Gradient for f32 {
    #[inline(always)]
    fn value(&self) -> f32 {
        *self
    }
}

impl Gradient for f16 {
    #[inline(always)]
    fn value(&self) -> f32 {
        any_half(self.to_bits())
    }
}

/// Gradients of one output, each multiplied with `inverse` when it is read.
pub(crate) struct Unscaled<'a, G> {
    pub(crate) gradients: &'a [G],
    pub(crate) inverse: f32,
}

impl<G> Clone for Unscaled<'_, G> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<G> Copy for Unscaled<'_, G> {}

impl<G: Gradient> Weights for Unscaled<'_, G> {
    #[inline(always)]
    fn some<const N: usize>(self, at: usize) -> [f32; N] {
        let from = &self.gradients[at..at + N];
        std::array::from_fn(|j| self.inverse * from[j].value())
    }
}
