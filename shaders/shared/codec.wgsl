// Rounds a value to its code or half (SPEC 2). Needs `params`, shared/half.wgsl, shared/rng.wgsl.
var<private> pack_step: u32; // the step number; set before anything is packed

fn unordered(key: u32) -> u32 {
    return key ^ select(0xffffffffu, 0x80000000u, (key & 0x80000000u) != 0u);
}

// The bits of a bias, from the lowest value as an integer of `ordered`.
fn bias_of(low: u32) -> u32 {
    let bias = unordered(low);
    return select(bias, 0u, bias == 0x80000000u); // -0 and +0 are equal; +0 is stored
}

// The scale of codes over a range of `span`.
fn scale_of(span: f32) -> f32 {
    // fl(1 / (2^k - 1)), rounded at compile time so that host and device use the same constant.
    var inverse = 0.0039215688593685627;
    if (params.bits == 4u) { inverse = 0.06666667014360428; }
    if (params.bits == 2u) { inverse = 0.3333333432674408; }
    let scale = span * inverse;
    return select(scale, 0.0, scale < 1.1754943508222875e-38);
}

// The code of x, element `element` of `row`.
fn code_of(x: f32, row: u32, element: u32, scale: f32, bias: f32) -> u32 {
    if (scale == 0.0) { return 0u; }
    let levels = f32(1u << (params.bits & 31u));
    let v = (x - bias) / scale;
    let near = round(v);
    if (params.stochastic == 0u || abs(v - near) <= (levels + abs(bias) / scale) * 4.76837158203125e-7) {
        return u32(clamp(near, 0.0, levels - 1.0));
    }
    let below = floor(v);
    // The noise's upper 24 bits, and separately the half bit behind them. Neither difference loses a bit.
    let random = noise(pack_step, row, element, 0u);
    let beyond = select(0.0, 2.98023223876953125e-8, params.random_bits == 24u);
    let up = fract(v) - f32(random >> 8u) * 5.9604644775390625e-8 > beyond;
    return u32(clamp(below + select(0.0, 1.0, up), 0.0, levels - 1.0));
}

// Float `element` of the state of `row`, of which these are the facts, in 16 bits: a moment, or a sum in FP16.
fn state_half_of(x: f32, row: u32, element: u32, facts: u32) -> u32 {
    if ((facts & STATE_MOMENT) == 0u) { return half_of(x, row, element, 1u); }
    return moment_from_bits(bitcast<u32>(x), (facts & STATE_SIGNED) != 0u, noise(pack_step, row, element, 1u));
}

// Element `element` of `row` in FP16; purpose 0 for a weight, 1 for state.
fn half_of(x: f32, row: u32, element: u32, purpose: u32) -> u32 {
    if (params.stochastic == 0u) { return half_from_bits(bitcast<u32>(x), false, 0u); }
    return half_from_bits(bitcast<u32>(x), true, noise(pack_step, row, element, purpose));
}
