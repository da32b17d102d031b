// Int4x32 (SPEC 2): codes of 4 bits, for each 32 under a word with their scale and, above it, their bias in FP16. Twin of src/record/int4x32.rs, bit for
// bit. dim is a multiple of 32, so Quads have four floats. Needs what shared/pack.wgsl or shared/unpack4.wgsl needs.

fn values_of(head: u32) -> vec2<f32> {
    return vec2<f32>(f32_from_half(head & 0xffffu), f32_from_half(head >> 16u));
}

// Scale and bias of weight e.
fn head_of(record: Record, e: u32) -> vec2<f32> {
    return values_of(word_of(record, e / 32u));
}

// The half next to a magnitude, given as bits of at most 65504: towards 0, or away from it if `up`; itself if it is one.
fn half_next_to(magnitude: u32, up: bool) -> u32 {
    let half = half_from_bits(magnitude, true, select(NONE, 0u, up));
    return select(half, max(half, 1u), up && magnitude != 0u);
}

fn fifteen(scale: u32) -> u32 { return bitcast<u32>(15.0 * f32_from_half(scale)); } // exact; compared as an integer

// Word w of the heads of the FP32 row at `place`: of the block of its 32 weights.
fn head_word(place: u32, w: u32, row_scale: f32, row_bias: f32) -> u32 {
    var low = NONE;
    var high = 0u;
    for (var q = 8u * w; q < 8u * w + 8u; q++) {
        let v = load_quad(place, q);
        low = min(low, lowest(v));
        high = max(high, highest(v));
    }
    let least = bias_of(low);
    let negative = least >> 31u;
    let bias = half_next_to(least & 0x7fffffffu, negative == 1u) | (negative << 15u);
    // Beside a bias of 0 the range may be subnormal, which a device may take for 0 where it computes.
    var range = bias_of(high);
    if (bias != 0u) { range = bitcast<u32>(bitcast<f32>(range) - f32_from_half(bias)); }
    // The least scale of which 15 reach over the range: at most one half beside the rounded product.
    var scale = half_next_to(bitcast<u32>(bitcast<f32>(range) * 0.06666667014360428), true);
    if (scale > 0u && fifteen(max(scale, 1u) - 1u) >= range) { scale -= 1u; }
    if (fifteen(scale) < range) { scale += 1u; }
    return scale | (bias << 16u);
}

fn cannot_pack(all: Extent, span: f32) -> bool {
    return max(unordered(all.high) & 0x7fffffffu, unordered(all.low) & 0x7fffffffu) > 0x477fe000u; // 65504
}

// Word w of a record: eight codes.
fn word_of_codes(place: u32, row: u32, w: u32, row_scale: f32, row_bias: f32) -> u32 {
    let first = 8u * (w - params.payload_half / 2u);
    let head = values_of(head_word(place, first / 32u, 0.0, 0.0));
    return codes_of(load_quad(place, first / 4u), head) | (codes_of(load_quad(place, first / 4u + 1u), head) << 16u);
}

// The codes of four neighbours. A device's division may be off by 2.5 ULP, but a product of a scale and half a code is exact: so the code next to the quotient
// is found by comparing with the middles beside it, ties to the even code.
fn codes_of(v: vec4<f32>, head: vec2<f32>) -> u32 {
    if (head.x == 0.0) { return 0u; }
    let x = v - head.y;
    let near = clamp(round(x / head.x), vec4<f32>(0.0), vec4<f32>(15.0));
    let odd = (vec4<u32>(near) & vec4<u32>(1u)) == vec4<u32>(1u);
    let lower = head.x * (near - 0.5);
    let upper = head.x * (near + 0.5);
    let down = (x < lower) | ((x == lower) & odd);
    let up = (x > upper) | ((x == upper) & odd);
    let code = clamp(near + vec4<f32>(up) - vec4<f32>(down), vec4<f32>(0.0), vec4<f32>(15.0));
    let placed = vec4<u32>(code) << vec4<u32>(0u, 4u, 8u, 12u);
    return placed.x | placed.y | placed.z | placed.w;
}
