//! Host side of `shaders/robe/robe_update.wgsl`: updates the weights that chunks cover.

use crate::{
    gpu::{
        engine::call::{Call, Groups, Named},
        stages::{
            ROBE_BLOCKS, ROBE_UPDATE,
            robe::{array::Array, space::GradientSums},
        },
    },
    table::abi::Robe,
};

/// Encodes a dispatch for each window of the array.
pub(crate) fn encode(call: &mut Call<'_>, gradients: &GradientSums<'_>, array: &Array, rate: &wgpu::Buffer) {
    let kernel = if array.storage.plain() { &ROBE_UPDATE } else { &ROBE_BLOCKS };
    for (k, (memory, states)) in (0..).zip(array.memory.iter().zip(&array.states)) {
        let robe = Robe { first: k * gradients.robe.window, ..gradients.robe };
        let other = (k > 0).then(|| call.context.uniform(&robe));
        let from: &[&dyn Named] = &[
            &("robe", other.as_ref().unwrap_or(&gradients.uniforms.robe)),
            &("memory", memory),
            &("states", states),
            &("rate", rate),
            gradients,
            array,
        ];
        // If there may be so many starts that all weights are visited, which only the device knows: one invocation for each weight of the
        // window, enough for the starts as well. Else enough for the starts, or for the blocks that their chunks can reach.
        let starts = gradients.starts();
        let groups = if starts >= robe.dense_from {
            Groups::capped(robe.window.min(robe.weights - robe.first), 256)
        } else if array.storage.plain() {
            Groups::capped(starts, starts_at_once(robe.reach))
        } else {
            let together = array.storage.neighbours();
            let reached = u64::from(starts) * u64::from(((robe.reach + together - 2) / together + 1) * together);
            Groups::Capped(reached.div_ceil(256))
        };
        call.run(kernel, from, &groups);
    }
}

/// Number of starts whose weights a workgroup updates at once: they own at most eight weights for each invocation.
fn starts_at_once(reach: u32) -> u32 {
    256 / (1 << reach.ilog2()).min(8)
}
