// The optimiser of a shared weight: SGD, AdaGrad, momentum or Adam. Needs `params`, `rate`, shared/correction.wgsl.

const ADAGRAD: u32 = 1u; // params.optimizer
const MOMENTUM: u32 = 3u;
const ADAM: u32 = 4u;

var<private> fix1: f32; // 1 - beta1^t, set before anything moves
var<private> fix2: f32; // 1 - beta2^t

// A weight and its states: AdaGrad's sum of squares, the momentum, or Adam's two moments.
struct Moved {
    w: f32,
    first: f32,
    second: f32,
    finite: bool, // whether the sum and all new values are; else the weight must stay
}

fn at_step(t: u32) {
    if (params.optimizer == ADAM) {
        fix1 = correction(params.beta1, t);
        fix2 = correction(params.beta2, t);
    }
}

fn moved_by(sum: f32, w: f32, first: f32, second: f32) -> Moved {
    var g = sum;
    if (params.clip_value > 0.0) { g = clamp(g, -params.clip_value, params.clip_value); }
    g += params.weight_decay * w;
    var by = rate.lr * g;
    var next = Moved(w, 0.0, 0.0, false);
    if (params.optimizer == ADAGRAD) {
        next.first = first + g * g;
        by = by / (sqrt(next.first) + params.eps);
    } else if (params.optimizer == MOMENTUM) {
        next.first = params.beta1 * first + g;
        by = rate.lr * next.first;
    } else if (params.optimizer == ADAM) {
        next.first = first + (1.0 - params.beta1) * (g - first);
        next.second = second + (1.0 - params.beta2) * (g * g - second);
        by = rate.lr * next.first / (fix1 * (sqrt(next.second / fix2) + params.eps));
    }
    if (params.shrink != 0.0) { by += rate.lr * params.shrink * w; }
    next.w = w - by;
    // A bound makes an infinite sum finite.
    next.finite = is_finite(bits_of(sum)) && is_finite(bits_of(g)) && is_finite(bits_of(next.w))
        && is_finite(bits_of(next.first)) && is_finite(bits_of(next.second));
    return next;
}
