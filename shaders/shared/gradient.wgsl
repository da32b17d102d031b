// Needs `widened`. FP16 has two Quads where FP32 has one.

// Quad `at` of all gradients, in the words that hold it.
fn gradient_in(words: Words, at: u32) -> Quad {
    if (params.half_grads == 0u) { return bitcast<Quad>(words); }
    return widened(words, at);
}

fn grad_output(at: u32) -> Quad {
    return gradient_in(grad_outputs[at >> params.half_grads], at);
}

struct FourWords { a: Words, b: Words, c: Words, d: Words }

// Four of them, with one branch for all.
fn four_in(words: FourWords, at: vec4<u32>) -> Four {
    if (params.half_grads == 0u) {
        return Four(bitcast<Quad>(words.a), bitcast<Quad>(words.b), bitcast<Quad>(words.c), bitcast<Quad>(words.d));
    }
    return Four(widened(words.a, at.x), widened(words.b, at.y), widened(words.c, at.z), widened(words.d, at.w));
}
