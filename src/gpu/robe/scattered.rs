//! [`Backward::Atomic`](crate::robe::Backward::Atomic): nothing is sorted; each gradient is added to its weight's sum as it comes.

use super::{
    super::{
        Context, GradBuffer,
        call::Call,
        robe_scatter, robe_step,
        space::{Make, in_context},
    },
    Array, Space, Uniforms,
    backward::Waiting,
};
use crate::{
    Error,
    layout::Params,
    robe::{Backward, Config},
};

/// Where gradients are added up. All of it is 0 between steps.
#[derive(Debug)]
pub(crate) struct Scattered<B = wgpu::Buffer> {
    /// One a weight.
    pub(crate) sums: B,
    /// A bit a weight, where weights decay: 1 if a chunk covers it.
    pub(crate) covered: B,
}

impl<B> Scattered<B> {
    /// The list of its buffers.
    pub(crate) fn of(make: &mut Make<'_, B>, config: &Config) -> Result<Self, Error> {
        let marks = if config.optimizer.weight_decay == 0.0 { 0 } else { config.weights.div_ceil(32) };
        let sums = make("sums", 4 * u64::from(config.weights))?;
        Ok(Self { sums, covered: make("covered", 4 * u64::from(marks))? })
    }
}

impl Scattered {
    /// That of a group whose backward wants one.
    pub(super) fn new(context: &Context, config: &Config) -> Result<Option<Self>, Error> {
        if config.backward != Backward::Atomic {
            return Ok(None);
        }
        let (wanted, limit) = (4 * u64::from(config.weights), context.caps().choose_shard_bytes());
        if wanted > limit {
            let remedy = "compress more, or take Backward::Sparse: Backward::Atomic's sums are one binding";
            return Err(Error::TooLarge { what: "sums", wanted, limit, remedy });
        }
        Self::of(&mut in_context(context), config).map(Some)
    }

    /// A whole backward, of a batch with at least one index.
    pub(super) fn record(
        &self,
        context: &Context,
        encoder: &mut wgpu::CommandEncoder,
        waiting: &Waiting,
        (array, space): (&Array, &Space),
        grad_outputs: GradBuffer<'_>,
        scaler: &wgpu::Buffer,
    ) -> Result<(), Error> {
        let bound = waiting.bind(context, grad_outputs)?;
        let params = Params { half_grads: u32::from(grad_outputs.is_half()), ..waiting.params };
        let uniforms = &Uniforms::new(context, &params, &waiting.robe);
        let call = &mut Call::begin(context, encoder, "hotrow.robe.backward");
        let elements = waiting.indices * waiting.robe.dim;
        robe_scatter::record(call, uniforms, scaler, space, &bound, self, elements);
        robe_step::record(call, uniforms, &waiting.robe, self, array);
        Ok(())
    }
}
