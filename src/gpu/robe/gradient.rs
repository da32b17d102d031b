//! The gradient of the shared weights, and a step by one that the caller gives.

use crate::{
    error::Error,
    gpu::{
        device::DeviceGroup,
        engine::{
            bind::FloatBuffer,
            call::{Call, Groups},
            numbers::CONTINUED,
            readback::Tells,
        },
        robe::SharedGroup,
        scaler::Scaler,
        stages::{
            ROBE_GIVEN, ROBE_GRADIENT,
            robe::{
                robe_update,
                space::{Chunks, GradientSums, Uniforms},
            },
        },
    },
    table::abi::{Rate, ScalerState},
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
        grad_outputs: impl Into<FloatBuffer<'g>>,
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

    /// Encodes a step by a gradient of the shared weights, a float for each, in place of the last forward's backward, as
    /// [`SharedArray::step`](crate::SharedArray::step) does; with a scaler as [`step_scaled`](crate::SharedArray::step_scaled).
    ///
    /// ```
    /// use hotrow::wgpu::{self, BufferUsages, util::DeviceExt as _};
    /// use hotrow::{Bags, Mode, SharedGroup, adapter, prelude::*, robe};
    ///
    /// # fn main() -> Result<(), hotrow::Error> {
    /// let Ok(context) = adapter::open_best() else { return Ok(()) };
    /// let (contents, usage) = (bytemuck::cast_slice(&[1f32; 64]), BufferUsages::STORAGE);
    /// let floats = || context.device().create_buffer_init(&wgpu::util::BufferInitDescriptor { label: None, contents, usage });
    /// let (grads, gradient) = (floats(), floats());
    /// let mut table = SharedGroup::new(&context, robe::Config::new(&[1000], 4, 64, 4))?;
    /// table.forward(Bags::new(&[7], &[0, 1]), Mode::Train)?;
    /// let mut encoder = context.device().create_command_encoder(&Default::default());
    /// table.encode_gradient(&mut encoder, grads.slice(..), gradient.slice(..))?;
    /// // Your commands that add the gradients of other devices.
    /// table.encode_step(&mut encoder, gradient.slice(..), None)?;
    /// context.queue().submit([encoder.finish()]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`encode_backward_scaled`](Self::encode_backward_scaled); [`Error::Buffer`] for a gradient that cannot be bound or is too short,
    /// [`Error::TooLarge`] for more weights than the device binds at once.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn encode_step(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        gradient: wgpu::BufferSlice<'_>,
        scaler: Option<&Scaler>,
    ) -> Result<(), Error> {
        let context = self.context.clone();
        let verdict = match scaler {
            Some(scaler) => scaler.decided("encode_step")?.clone(),
            None => context.uniform(&ScalerState::unscaled()),
        };
        context.guarded(|| {
            self.encode_given(encoder, gradient, &verdict)?;
            if let Some(space) = &self.kind.train {
                self.reports.encode(&context, encoder, &space.step, Tells::Continues("step"));
            }
            Ok(())
        })
    }

    pub(crate) fn encode_given(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        gradient: wgpu::BufferSlice<'_>,
        scaler: &wgpu::Buffer,
    ) -> Result<(), Error> {
        let waiting = self.waiting_for("step")?;
        let bound = self.bind_gradient(gradient)?;
        let DeviceGroup { context, state, rate, numbers, kind, .. } = self;
        let Some(space) = &kind.train else { return Ok(()) };
        let scratch = Chunks::grown(&mut kind.chunks, context, &waiting.robe, 1)?;
        let (params, robe) = (waiting.params, waiting.robe.given());
        let uniforms = Uniforms::new(context, &params, &robe);
        let given = GradientSums { uniforms, params, robe, scratch, chunks: 1, grad_outputs: bound };
        numbers.encode(context, encoder, (&space.step, CONTINUED), waiting.number);
        let rate = rate.encode(context, encoder, &Rate::new(&kind.config.optimizer));
        let call = &mut Call::begin(context, encoder, "hotrow.robe.step");
        call.run(&ROBE_GIVEN, &[space, &kind.array, scratch, &("scaler", scaler)], &Groups::of(1, 1));
        robe_update::encode(call, &given, &kind.array, rate);
        state.end_forward();
        Ok(())
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
