// Packs codes, one float at a time. Needs all that shared/pack.wgsl needs.

// Half h of a record, which has codes.
fn half_of_codes(place: u32, row: u32, h: u32, scale: f32, bias: f32) -> u32 {
    let per_half = 16u / params.bits;
    let first = (h - params.payload_half) * per_half;
    var bits = 0u;
    for (var k = 0u; k < per_half; k++) {
        let e = first + k;
        if (e >= params.dim) { break; }
        bits |= code_of(load_quad(place, e), row, e, scale, bias) << (k * params.bits);
    }
    return bits;
}
