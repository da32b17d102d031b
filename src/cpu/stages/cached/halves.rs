//! CPU mirror of `shaders/cached/halves.wgsl`: rounds the outputs of a forward to FP16.

use crate::{record::rows::half::round_outputs, table::layout::Halves};

/// Rounds outputs to halves, two in a word. Mirror of `shaders/cached/halves.wgsl`.
pub fn halves(halves: &Halves, sums: &[f32], outputs: &mut [u32]) {
    let n = halves.elements as usize;
    let outputs: &mut [u16] = bytemuck::cast_slice_mut(&mut outputs[..n.div_ceil(2)]);
    let (rounded, rest) = outputs.split_at_mut(n);
    round_outputs(&sums[..n], rounded);
    rest.fill(0);
}
