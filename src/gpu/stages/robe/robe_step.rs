//! Host side of `shaders/robe/robe_step.wgsl`: the optimiser over scattered sums.

use crate::{
    gpu::{
        engine::call::{Call, Groups},
        stages::robe::{
            array::Array,
            space::{Scattered, Uniforms},
        },
    },
    table::layout::Robe,
    wgsl::{
        Access::{ReadWrite, Uniform},
        Kernel,
    },
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "robe_step",
    workgroup: 256,
    bindings: &[
        (Uniform, "params"),
        (Uniform, "robe"),
        (ReadWrite, "sums"),
        (ReadWrite, "covered"),
        (ReadWrite, "memory"),
        (ReadWrite, "states"),
        (ReadWrite, "tables"),
    ],
};

/// A dispatch for each window of the array.
pub(crate) fn record(call: &mut Call<'_>, uniforms: &Uniforms, robe: &Robe, scattered: &Scattered, array: &Array) {
    for (k, (memory, states)) in (0..).zip(array.memory.iter().zip(&array.states)) {
        let robe = Robe { first: k * robe.window, ..*robe };
        let other = (k > 0).then(|| call.context.uniform(&robe));
        let bindings = [
            uniforms.params.as_entire_binding(),
            other.as_ref().unwrap_or(&uniforms.robe).as_entire_binding(),
            scattered.sums.as_entire_binding(),
            scattered.covered.as_entire_binding(),
            memory.as_entire_binding(),
            states.as_entire_binding(),
            array.tables.as_entire_binding(),
        ];
        // A window may begin within a word of marks.
        let weights = robe.window.min(robe.weights - robe.first) + robe.first % 32;
        call.dispatch(&KERNEL, &bindings, &Groups::capped(weights, 256));
    }
}
