// Reads the gradients of the outputs, FP32 or FP16. Needs `grad_outputs: array<Words>`, `params`,
// shared/half.wgsl, shared/quad4.wgsl.
alias Words = vec4<u32>;

// Quad `at` in FP16, of the vec4 with two. The neighbouring Quad reads the other half.
fn widened(both: vec4<u32>, at: u32) -> Quad {
    let four = select(both.xy, both.zw, (at & 1u) == 1u);
    return bitcast<vec4<f32>>(vec4<u32>(bits_from_half(four.x & 0xffffu), bits_from_half(four.x >> 16u),
        bits_from_half(four.y & 0xffffu), bits_from_half(four.y >> 16u)));
}

#include "shared/gradient.wgsl"
