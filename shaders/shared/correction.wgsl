// 1 - beta^t, which corrects a moment for its start at zero, with the bits of `correction` in
// src/rules/mod.rs. Needs `params`.

// A result that no compiler fuses with the operation after it; see `bits_of` in shared/quad1.wgsl.
fn alone(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) ^ params.zero);
}

// By squaring of the complement: from q = 1 - beta^n, 1 - beta^2n is q * (2 - q), without cancellation.
fn correction(beta: f32, t: u32) -> f32 {
    var q = alone(1.0 - beta);
    var all = 0.0;
    for (var left = max(t, 1u); left > 0u; left >>= 1u) {
        if ((left & 1u) == 1u) { all = alone(all + alone(alone(1.0 - all) * q)); }
        q = alone(q * alone(2.0 - q));
    }
    return all;
}
