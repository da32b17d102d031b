//! [`Backward::Atomic`](crate::robe::config::Backward::Atomic): no sort; each gradient is added atomically to the sum of its weight.

use crate::{
    error::Error,
    gpu::{
        engine::{bind::GradBuffer, call::Call, context::Context},
        robe::backward::Waiting,
        stages::robe::{
            array::Array,
            robe_scatter, robe_step,
            space::{Scattered, Space, Uniforms},
        },
    },
    table::layout::Params,
};

impl Scattered {
    /// Records a whole backward of a batch with at least one index.
    pub(crate) fn record(
        &self,
        context: &Context,
        encoder: &mut wgpu::CommandEncoder,
        waiting: &Waiting,
        (array, space): (&Array, &Space),
        grad_outputs: GradBuffer<'_>,
        (scaler, rate): (&wgpu::Buffer, &wgpu::Buffer),
    ) -> Result<(), Error> {
        let bound = waiting.bind(context, grad_outputs)?;
        let params = Params { half_grads: u32::from(grad_outputs.is_half()), ..waiting.params };
        let uniforms = &Uniforms::new(context, &params, &waiting.robe);
        let call = &mut Call::begin(context, encoder, "hotrow.robe.backward");
        let elements = waiting.indices * waiting.robe.dim;
        robe_scatter::record(call, uniforms, scaler, space, &bound, self, elements);
        robe_step::record(call, (uniforms, rate), &waiting.robe, self, array);
        Ok(())
    }
}
