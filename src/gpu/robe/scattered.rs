//! [`Backward::Atomic`](crate::robe::config::Backward::Atomic): no sort; each gradient is added atomically to the sum of its weight.

use crate::{
    error::Error,
    gpu::{
        engine::{
            bind::FloatBuffer,
            call::{Call, Groups, Named},
            context::Context,
        },
        robe::backward::Waiting,
        stages::{
            ROBE_SCATTER, ROBE_STEP,
            robe::{
                array::Array,
                space::{Scattered, Space, Uniforms},
            },
        },
    },
    table::abi::{Params, Robe},
};

impl Scattered {
    /// Encodes a whole backward of a batch with at least one index.
    pub(crate) fn encode(
        &self,
        context: &Context,
        encoder: &mut wgpu::CommandEncoder,
        waiting: &Waiting,
        (array, space): (&Array, &Space),
        grad_outputs: FloatBuffer<'_>,
        (scaler, rate): (&wgpu::Buffer, &wgpu::Buffer),
    ) -> Result<(), Error> {
        let bound = waiting.bind(context, grad_outputs)?;
        let params = Params { half_grads: u32::from(grad_outputs.is_half()), ..waiting.params };
        let uniforms = &Uniforms::new(context, &params, &waiting.robe);
        let call = &mut Call::begin(context, encoder, "hotrow.robe.backward");
        let elements = waiting.indices * waiting.robe.dim;
        let from: &[&dyn Named] = &[uniforms, &("scaler", scaler), &("grad_outputs", bound), space, self];
        call.run(&ROBE_SCATTER, from, &Groups::capped(elements, 256));
        // A dispatch for each window of the array.
        for (k, (memory, states)) in (0..).zip(array.memory.iter().zip(&array.states)) {
            let robe = Robe { first: k * waiting.robe.window, ..waiting.robe };
            let other = (k > 0).then(|| context.uniform(&robe));
            let from: &[&dyn Named] = &[
                &("robe", other.as_ref().unwrap_or(&uniforms.robe)),
                &("memory", memory),
                &("states", states),
                &("rate", rate),
                uniforms,
                self,
                array,
            ];
            // A window may begin within a word of marks.
            let weights = robe.window.min(robe.weights - robe.first) + robe.first % 32;
            call.run(&ROBE_STEP, from, &Groups::capped(weights, 256));
        }
        Ok(())
    }
}
