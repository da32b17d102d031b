// Reads the gradients of the outputs, FP32 or FP16, one at a time. Needs `grad_outputs: array<Words>`, `params`,
// shared/half.wgsl, shared/quad1.wgsl.
alias Words = u32;

// Gradient `at` in FP16, of the word with two.
fn widened(both: u32, at: u32) -> Quad {
    return bitcast<f32>(bits_from_half((both >> (16u * (at & 1u))) & 0xffffu));
}

#include "shared/gradient.wgsl"
