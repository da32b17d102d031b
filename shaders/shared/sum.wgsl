// Sums gradients. Needs `accesses`, `params`, shared/quad{width}.wgsl, shared/gradient{width}.wgsl and shared/slots.wgsl.

var<private> unscale: f32; // 1 / scale of the loss; set before anything is summed

// The gradient of sorted access j, unscaled in FP32. Without weights and mean pooling every coefficient is 1, and no
// stage writes it.
fn gradient_of(j: u32, q: u32) -> Quad {
    let one = accesses[j];
    let g = times(unscale, grad_output(one.x * weight_quads() + q));
    if (params.weighted == 1u || params.pooling == MEAN) { return bitcast<f32>(one.y) * g; }
    return g;
}

// Sums the sorted accesses first to end - 1 in order, with four loads under way at a time: a compiler may move a load behind
// the branches before its first use.
fn sum_of(first: u32, end: u32, q: u32) -> Quad {
    var sum = Quad(0.0);
    var j = first;
    for (; j + 4u <= end; j += 4u) {
        let one = accesses[j];
        let two = accesses[j + 1u];
        let three = accesses[j + 2u];
        let four = accesses[j + 3u];
        var g = four_grad_outputs(vec4<u32>(one.x, two.x, three.x, four.x) * weight_quads() + q);
        g = Four(times(unscale, g.a), times(unscale, g.b), times(unscale, g.c), times(unscale, g.d));
        // In a block of its own, so that no product fuses with the sum.
        if (params.weighted == 1u || params.pooling == MEAN) {
            let by = bitcast<vec4<f32>>(vec4<u32>(one.y, two.y, three.y, four.y));
            g = Four(by.x * g.a, by.y * g.b, by.z * g.c, by.w * g.d);
        }
        sum = plus(plus(plus(plus(sum, g.a), g.b), g.c), g.d);
    }
    for (; j < end; j++) { sum = plus(sum, gradient_of(j, q)); }
    return sum;
}
