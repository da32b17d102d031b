// Functions of floats with the same bits on every device and on the CPU (src/cpu/stages/scaler/exact.rs): made of sums
// and products only, each rounded by itself. A compiler may fuse a product and a sum, but not through `settled`,
// because it does not know that rule.zero is 0. No operand here is subnormal, since a device may flush subnormals to
// zero. Needs `rule`.

fn settled(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) ^ rule.zero);
}

fn times(a: f32, b: f32) -> f32 {
    return settled(a * b);
}

fn plus(a: f32, b: f32) -> f32 {
    return settled(a + b);
}

// 1 / d, for d from 2^-126 to 2^126: exact for a power of two, else four steps of Newton's method, within 2 ULP.
fn reciprocal(d: f32) -> f32 {
    let bits = bitcast<u32>(d);
    if ((bits & 0x7fffffu) == 0u) { return bitcast<f32>(0x7f000000u - bits); }
    var r = bitcast<f32>(0x7ef311c7u - bits);
    for (var i = 0u; i < 4u; i++) { r = times(r, plus(2.0, -times(d, r))); }
    return r;
}

// The square root of x, for x from 2^-80 to 2^80, within 4 ULP; 0 for smaller x.
fn root(x: f32) -> f32 {
    if (x < 8.271806125530277e-25) { return 0.0; }
    var r = bitcast<f32>(0x5f375a86u - (bitcast<u32>(x) >> 1u));
    for (var i = 0u; i < 4u; i++) { r = times(r, plus(1.5, -times(times(0.5, x), times(r, r)))); }
    return times(x, r);
}

// log2 of a normal x > 0, within 2^-21 or 4 ULP; exact for a power of two.
fn logarithm(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    var exponent = f32(bits >> 23u) - 127.0;
    var m = bitcast<f32>((bits & 0x7fffffu) | 0x3f800000u);
    if (m > 1.4142135) {
        m = m * 0.5;
        exponent += 1.0;
    }
    // 2 atanh(z) = ln(m).
    let z = times(plus(m, -1.0), reciprocal(plus(m, 1.0)));
    let w = times(z, z);
    var p = 0.11111111;
    p = plus(0.14285715, times(w, p));
    p = plus(0.2, times(w, p));
    p = plus(0.33333334, times(w, p));
    p = plus(1.0, times(w, p));
    return plus(exponent, times(2.88539, times(z, p)));
}

// 2 to the power of x, clamped to -126 .. 126, within 4 ULP.
fn power(x: f32) -> f32 {
    let held = min(max(x, -126.0), 126.0);
    let whole = floor(plus(held, 0.5));
    let u = times(plus(held, -whole), 0.6931472);
    var p = plus(1.0, times(u, 0.14285715));
    p = plus(1.0, times(times(u, 0.16666667), p));
    p = plus(1.0, times(times(u, 0.2), p));
    p = plus(1.0, times(times(u, 0.25), p));
    p = plus(1.0, times(times(u, 0.33333334), p));
    p = plus(1.0, times(times(u, 0.5), p));
    p = plus(1.0, times(u, p));
    return times(p, bitcast<f32>(u32(i32(whole) + 127) << 23u));
}
