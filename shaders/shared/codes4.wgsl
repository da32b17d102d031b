// Packs codes, four floats at a time. Needs all that shared/pack.wgsl needs.

// Word w of a record, which has the codes of one, two or four Quads.
fn word_of_codes(place: u32, row: u32, w: u32, scale: f32, bias: f32) -> u32 {
    let first = (2u * w - params.payload_half) * (16u / params.bits);
    // The reach of values that are taken for a code itself; the same for the whole row.
    let reach = (f32(1u << (params.bits & 31u)) + abs(bias) / scale) * 4.76837158203125e-7;
    var word = 0u;
    for (var k = 0u; k < 32u / params.bits; k += 4u) {
        let e = first + k;
        if (e >= params.dim) { break; }
        let codes = codes_of(load_quad(place, e / 4u), row, e, scale, bias, reach) << ((vec4<u32>(0u, 1u, 2u, 3u) * params.bits) & vec4<u32>(31u));
        word |= (codes.x | codes.y | codes.z | codes.w) << (k * params.bits);
    }
    return word;
}

// The codes of the elements e to e + 3 of `row`, as `code_of`; e is a multiple of 4.
fn codes_of(v: vec4<f32>, row: u32, e: u32, scale: f32, bias: f32, reach: f32) -> vec4<u32> {
    if (scale == 0.0) { return vec4<u32>(0u); }
    let top = vec4<f32>(f32((1u << (params.bits & 31u)) - 1u));
    let x = (v - bias) / scale;
    let near = round(x);
    var code = near;
    if (params.stochastic != 0u) {
        let below = floor(x);
        let random = noise4(pack_step, row, e, 0u);
        let beyond = select(0.0, 2.98023223876953125e-8, params.random_bits == 24u);
        let up = fract(x) - vec4<f32>(random >> vec4<u32>(8u)) * 5.9604644775390625e-8 > vec4<f32>(beyond);
        code = select(below + vec4<f32>(up), near, abs(x - near) <= vec4<f32>(reach));
    }
    return vec4<u32>(clamp(code, vec4<f32>(0.0), top));
}
