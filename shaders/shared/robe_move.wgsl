// A shared weight after a step of the optimiser. Needs `params`, `rate`, shared/quad1.wgsl, shared/correction.wgsl.
#include "shared/rule.wgsl"

var<private> step_numbers: Numbers; // set before anything moves

struct Moved {
    e: Element,
    finite: bool, // whether the sum and all new values are; else the weight must stay
}

fn at_step(t: u32) {
    step_numbers = numbers_at(t);
}

fn moved_by(sum: f32, w: f32, first: f32, second: f32) -> Moved {
    var g = sum;
    if (params.clip_value > 0.0) { g = clamp(g, -params.clip_value, params.clip_value); }
    let e = stepped(Element(g + params.weight_decay * w, w, first, second), step_numbers);
    // A bound makes an infinite sum finite.
    let finite = is_finite(bits_of(sum)) && is_finite(bits_of(e.g)) && is_finite(bits_of(e.w))
        && is_finite(bits_of(e.first)) && is_finite(bits_of(e.second));
    return Moved(e, finite);
}
