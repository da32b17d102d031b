// Needs `widened`. FP16 has two Quads where FP32 has one.

// Quad `at` of all gradients.
fn grad_output(at: u32) -> Quad {
    let words = grad_outputs[at >> params.half_grads];
    if (params.half_grads == 0u) { return bitcast<Quad>(words); }
    return widened(words, at);
}

// Four of them. Their loads stand side by side, with no branch between, so that all are under way at once.
fn four_grad_outputs(at: vec4<u32>) -> Four {
    let words = at >> vec4<u32>(params.half_grads);
    let a = grad_outputs[words.x];
    let b = grad_outputs[words.y];
    let c = grad_outputs[words.z];
    let d = grad_outputs[words.w];
    if (params.half_grads == 0u) { return Four(bitcast<Quad>(a), bitcast<Quad>(b), bitcast<Quad>(c), bitcast<Quad>(d)); }
    return Four(widened(a, at.x), widened(b, at.y), widened(c, at.z), widened(d, at.w));
}
