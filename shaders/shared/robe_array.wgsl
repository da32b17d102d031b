// Reads a weight of a packed shared array: FP16, two in a word; integers in blocks of scale, bias and codes. Needs
// `array_word`, `params`, `robe`, shared/half.wgsl, shared/quad1.wgsl.

fn weight_of(w: u32) -> f32 {
    if (params.bits == 16u) { return f32_from_half((array_word(w / 2u) >> (16u * (w & 1u))) & 0xffffu); }
    let base = (w >> firstTrailingBit(robe.block)) * robe.block_words;
    let bit = (w & (robe.block - 1u)) * params.bits;
    let code = (array_word(base + 2u + bit / 32u) >> (bit & 31u)) & ((1u << params.bits) - 1u);
    return settled(f32(code) * bitcast<f32>(array_word(base))) + bitcast<f32>(array_word(base + 1u));
}
