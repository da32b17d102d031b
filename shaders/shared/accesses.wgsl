// Gradients of sorted accesses, four at a time: of fewer, the last is read again. Loads stand side by side, so that all of them are under way at once. Needs
// `accesses`, `params`, shared/quad{width}.wgsl, shared/gradient{width}.wgsl.

var<private> unscale: f32; // 1 / scale of the loss; set before anything is summed

// The words of four accesses: output rows, or first gradients of chunks; and the bits of coefficients.
struct Accesses { first: vec4<u32>, factors: vec4<u32> }

// The accesses from j on, below `end`.
fn four_accesses(j: u32, end: u32) -> Accesses {
    let k = min(vec4<u32>(j) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(end - 1u));
    let a = accesses[k.x];
    let b = accesses[k.y];
    let c = accesses[k.z];
    let d = accesses[k.w];
    return Accesses(vec4<u32>(a.x, b.x, c.x, d.x), vec4<u32>(a.y, b.y, c.y, d.y));
}

// Which of them are below `end`.
fn four_below(j: u32, end: u32) -> vec4<bool> {
    return vec4<u32>(j) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(end);
}

// Adds the gradients `at` that are live, in order, unscaled in FP32. Without weights and mean pooling every coefficient is 1, and no stage writes it.
fn add_four(sum: Quad, at: vec4<u32>, factors: vec4<u32>, live: vec4<bool>) -> Quad {
    let word = at >> vec4<u32>(params.half_grads);
    let read = four_in(FourWords(grad_outputs[word.x], grad_outputs[word.y], grad_outputs[word.z], grad_outputs[word.w]), at);
    var g = Four(times(unscale, read.a), times(unscale, read.b), times(unscale, read.c), times(unscale, read.d));
    // In a block of its own, so that no product fuses with the sum.
    if (params.weighted == 1u || params.pooling == MEAN) {
        let by = bitcast<vec4<f32>>(factors);
        g = Four(by.x * g.a, by.y * g.b, by.z * g.c, by.w * g.d);
    }
    var all = select(sum, plus(sum, g.a), live.x);
    all = select(all, plus(all, g.b), live.y);
    all = select(all, plus(all, g.c), live.z);
    return select(all, plus(all, g.d), live.w);
}
