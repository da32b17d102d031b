// Sums gradients. Needs `accesses`, `params`, shared/quad{width}.wgsl, shared/gradient{width}.wgsl and shared/slots.wgsl.

var<private> unscale: f32; // 1 / scale of the loss; set before anything is summed

// The gradient of sorted access j, unscaled in FP32. Without weights and mean pooling every coefficient is 1, and no
// stage writes it.
fn gradient_of(j: u32, q: u32) -> Quad {
    let one = accesses[j];
    let g = unscale * grad_output(one.x * weight_quads() + q);
    if (params.weighted == 1u || params.pooling == MEAN) { return bitcast<f32>(one.y) * g; }
    return g;
}

// Sums the sorted accesses first to end - 1 in order, with four loads in flight.
fn sum_of(first: u32, end: u32, q: u32) -> Quad {
    var sum = Quad();
    var j = first;
    for (; j + 4u <= end; j += 4u) {
        let a = gradient_of(j, q);
        let b = gradient_of(j + 1u, q);
        let c = gradient_of(j + 2u, q);
        let d = gradient_of(j + 3u, q);
        sum = (((sum + a) + b) + c) + d;
    }
    for (; j < end; j++) { sum += gradient_of(j, q); }
    return sum;
}
