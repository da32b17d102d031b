// Reads the gradients of the outputs, FP32 or FP16, one at a time. Needs `grad_outputs: array<Words>`, `params`,
// shared/half.wgsl.
alias Words = u32;

fn grad_output(at: u32) -> Quad {
    if (params.half_grads == 0u) { return bitcast<f32>(grad_outputs[at]); }
    return bitcast<f32>(bits_from_half((grad_outputs[at / 2u] >> (16u * (at & 1u))) & 0xffffu));
}
