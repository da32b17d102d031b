// Rows of floats, and rows of codes under one head, an FP32 scale and an FP32 bias (SPEC 2). To pack, needs all that shared/pack.wgsl needs;
// to unpack, all that shared/unpack{width}.wgsl needs.
#include "shared/codes{width}.wgsl"

// Scale and bias of weight e of a record with codes.
fn head_of(record: Record, e: u32) -> vec2<f32> {
    return bitcast<vec2<f32>>(two_words(record, 0u));
}

// Word w of the heads of the FP32 row at `place`, which has this scale and bias.
fn head_word(place: u32, w: u32, scale: f32, bias: f32) -> u32 {
    return select(bitcast<u32>(bias), bitcast<u32>(scale), w == 0u);
}

// Whether a row of finite values, with this lowest and highest one and their difference, cannot be packed.
fn cannot_pack(all: Extent, span: f32) -> bool {
    return !is_finite(bits_of(quad_of(span)));
}
