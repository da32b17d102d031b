//! Host side of `shaders/robe/robe_step.wgsl`: the optimiser on scattered sums.

use crate::{
    gpu::{
        engine::call::{Call, Groups, kernel},
        stages::robe::{
            array::Array,
            space::{Scattered, Uniforms},
        },
    },
    table::layout::Robe,
};

kernel! {
    "robe_step", workgroup 256,
    params: Uniform,
    robe: Uniform,
    sums: ReadWrite,
    covered: ReadWrite,
    memory: ReadWrite,
    states: ReadWrite,
    tables: ReadWrite,
    rate: Uniform,
}

/// Records a dispatch for each window of the array.
pub(crate) fn record(
    call: &mut Call<'_>,
    (uniforms, rate): (&Uniforms, &wgpu::Buffer),
    robe: &Robe,
    scattered: &Scattered,
    array: &Array,
) {
    for (k, (memory, states)) in (0..).zip(array.memory.iter().zip(&array.states)) {
        let robe = Robe { first: k * robe.window, ..*robe };
        let other = (k > 0).then(|| call.context.uniform(&robe));
        let bindings = Bindings {
            params: uniforms.params.as_entire_binding(),
            robe: other.as_ref().unwrap_or(&uniforms.robe).as_entire_binding(),
            sums: scattered.sums.as_entire_binding(),
            covered: scattered.covered.as_entire_binding(),
            memory: memory.as_entire_binding(),
            states: states.as_entire_binding(),
            tables: array.tables.as_entire_binding(),
            rate: rate.as_entire_binding(),
        };
        // A window may begin within a word of marks.
        let weights = robe.window.min(robe.weights - robe.first) + robe.first % 32;
        call.dispatch(bindings, &Groups::capped(weights, 256));
    }
}
