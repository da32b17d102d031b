// Reads the gradients of the outputs, FP32 or FP16, four at a time. Needs `grad_outputs: array<Words>`, `params`,
// shared/half.wgsl.
alias Words = vec4<u32>;

// Quad `at` of all gradients. In FP16 one vec4 holds two Quads; the neighbouring Quad reads the other half.
fn grad_output(at: u32) -> Quad {
    if (params.half_grads == 0u) { return bitcast<vec4<f32>>(grad_outputs[at]); }
    let both = grad_outputs[at / 2u];
    let four = select(both.xy, both.zw, (at & 1u) == 1u);
    return bitcast<vec4<f32>>(vec4<u32>(bits_from_half(four.x & 0xffffu), bits_from_half(four.x >> 16u),
        bits_from_half(four.y & 0xffffu), bits_from_half(four.y >> 16u)));
}
