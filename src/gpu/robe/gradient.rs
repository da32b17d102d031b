//! The gradient of the shared weights.

use crate::{
    error::Error,
    gpu::{
        device::DeviceGroup,
        engine::{
            bind::GradBuffer,
            call::{Call, Groups},
            numbers::CONTINUED,
            readback::Tells,
        },
        robe::SharedGroup,
        stages::{ROBE_GRADIENT, robe::space::GradientSums},
    },
    table::abi::ScalerState,
};

impl SharedGroup {
    /// Encodes the gradient of the last forward's loss with respect to the shared weights, as [`SharedArray::gradient`](crate::SharedArray::gradient)
    /// returns it, into a buffer of your own, or a part of one, with the usage `STORAGE`: a float for each weight. The forward still waits for its
    /// backward.
    ///
    /// # Errors
    /// As [`encode_backward`](Self::encode_backward); [`Error::Buffer`] for a buffer that cannot be bound, is too short, or has the gradients of the
    /// outputs; [`Error::TooLarge`] for more weights than the device binds at once.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn encode_gradient<'g>(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        grad_outputs: impl Into<GradBuffer<'g>>,
        gradient: wgpu::BufferSlice<'_>,
    ) -> Result<(), Error> {
        let (context, grad_outputs) = (self.context.clone(), grad_outputs.into());
        context.guarded(|| {
            let waiting = self.waiting_for("encode_gradient")?;
            if gradient.buffer() == grad_outputs.slice().buffer() {
                let found = "that of the grad_outputs".into();
                return Err(Error::Buffer { what: "gradient", wanted: "a buffer of its own".into(), found });
            }
            let bound = self.bind_gradient(gradient)?;
            let DeviceGroup { numbers, reports, kind, .. } = self;
            let Some(space) = &kind.train else { return Ok(()) };
            let sums = GradientSums::new(&context, &waiting, &mut kind.chunks, grad_outputs)?;
            numbers.encode(&context, encoder, (&space.step, CONTINUED), waiting.number);
            let mut call = Call::begin(&context, encoder, "hotrow.robe.gradient");
            sums.sort(&mut call, space, &context.uniform(&ScalerState::unscaled()));
            call.run(&ROBE_GRADIENT, &[&sums, &("sums", bound)], &Groups::capped(sums.robe.weights, 256));
            drop(call);
            reports.encode(&context, encoder, &space.step, Tells::Continues("encode_gradient"));
            Ok(())
        })
    }

    /// Binds a float for each weight.
    fn bind_gradient<'b>(&self, gradient: wgpu::BufferSlice<'b>) -> Result<wgpu::BindingResource<'b>, Error> {
        let (wanted, limit) = (4 * u64::from(self.kind.config.weights), self.context.caps().binding_bytes);
        if wanted > limit {
            let remedy = "compress more: a gradient of all weights is one binding";
            return Err(Error::TooLarge { what: "gradient", wanted, limit, remedy });
        }
        self.context.bind("gradient", gradient, wanted)
    }
}
