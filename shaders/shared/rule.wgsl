// The step of an update rule: each rule is a file of shaders/rules/, whose host twin in src/rules/ has the same operations in the same order. Needs
// `params`, `rate`, shared/quad{width}.wgsl, shared/correction.wgsl.

// Weights with their gradients and their states; 0 for states that the rule does not have.
struct Element {
    g: Quad, // within its bounds, with weight decay that is not decoupled
    w: Quad,
    first: Quad,
    second: Quad,
}

// What the elements of a row have in common.
struct Numbers {
    lr: f32,
    hyper: vec4<f32>, // the rule's hyperparameters, in the order of its file
    fix: vec2<f32>,   // 1 - beta^t of the first two, if the rule corrects moments
    own: f32,         // the row's own state after the step, if it has one
    t: u32,           // the number of the step
}

// The numbers of step t.
fn numbers_at(t: u32) -> Numbers {
    let hyper = vec4<f32>(params.hyper0, params.hyper1, params.hyper2, params.hyper3);
    var n = Numbers(rate.lr, hyper, vec2<f32>(1.0), 0.0, t);
    if (params.corrects == 1u) { n.fix = vec2<f32>(correction(hyper.x, t), correction(hyper.y, t)); }
    return n;
}

// Weights after a step by `by`, and by their decoupled decay.
fn descend(w: Quad, by: Quad) -> Quad {
    var all = by;
    if (params.shrink != 0.0) { all = all + rate.lr * params.shrink * w; }
    return w - all;
}

#rules
