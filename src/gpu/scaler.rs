//! A loss scaler on the device: inspect, rescale, and the state that backward reads.

use std::sync::{Arc, atomic::AtomicBool};

use crate::{
    error::Error,
    gpu::{
        engine::{
            bind::FloatBuffer,
            call::{Call, Groups, Named},
            context::Context,
            readback::watched,
        },
        stages::{INSPECT, RESCALE},
    },
    scaler::{LossScale, Phase},
    table::{
        abi::{Inspected, ScaleRule, ScalerState},
        step_state::is_set,
    },
};

/// A loss scaler whose state is on the device (OpenSeq2Seq), so that a step needs no answer from the device.
/// [`CpuScaler`](crate::CpuScaler) does the same for gradients on the host, with the same bits in its state.
///
/// In a step, the caller's loss reads the scale from [`buffer`](Self::buffer). Then the scaled gradients of every group and of the model's
/// other weights are inspected ([`encode_inspect`](Self::encode_inspect)). Then come [`encode_decide`](Self::encode_decide) and
/// [`Group::encode_backward_scaled`](crate::Group::encode_backward_scaled) for each group. All of it goes into one encoder, or into several
/// that are submitted in this order. If gradients overflowed, the caller must not update the model's other weights either; `overflow` in
/// the same buffer says so.
///
/// ```
/// use hotrow::wgpu::util::DeviceExt as _;
/// use hotrow::{FloatBuffer, LossScale, Scaler, adapter, wgpu};
///
/// # fn main() -> Result<(), hotrow::Error> {
/// let Ok(context) = adapter::open_best() else { return Ok(()) };
/// let gradients = context.device().create_buffer_init(&wgpu::util::BufferInitDescriptor {
///     label: None,
///     contents: bytemuck::cast_slice(&[1.0, f32::INFINITY, 0.5, 0.25]),
///     usage: wgpu::BufferUsages::STORAGE,
/// });
/// let mut scaler = Scaler::new(&context, LossScale::BACKOFF)?;
/// let mut encoder = context.device().create_command_encoder(&Default::default());
/// scaler.encode_inspect(&mut encoder, FloatBuffer::F32(gradients.slice(..)), 4)?;
/// scaler.encode_decide(&mut encoder)?; // then encode_backward_scaled of each group
/// context.queue().submit([encoder.finish()]);
/// assert_eq!(scaler.state()?.overflow, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Scaler {
    context: Context,
    config: LossScale,
    rule: wgpu::Buffer,
    greatest: wgpu::Buffer,
    state: wgpu::Buffer,
    phase: Phase,
    /// For each call since the last step's decision, that one included: whether its encoder was dropped.
    dropped: Vec<Option<Arc<AtomicBool>>>,
}

impl Drop for Scaler {
    fn drop(&mut self) {
        self.context.forget_bindings();
    }
}

impl Scaler {
    /// Creates a scaler in its first state.
    ///
    /// # Errors
    /// [`Error::Scaler`] for an illegal configuration; [`Error::OutOfMemory`].
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn new(context: &Context, config: LossScale) -> Result<Self, Error> {
        Self::with_state(context, config, &ScalerState::new(&config)?)
    }

    /// Creates a scaler that goes on from the state of another one with the same configuration, on any backend.
    ///
    /// # Errors
    /// As [`Scaler::new`]; [`Error::Scaler`] for a state that no such scaler can have.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn with_state(context: &Context, config: LossScale, state: &ScalerState) -> Result<Self, Error> {
        let rule: ScaleRule = config.rule()?;
        state.check(&config)?;
        let usage = wgpu::BufferUsages::UNIFORM;
        let buffer = context.buffer("loss scale", size_of::<ScalerState>() as u64, usage)?;
        context.queue().write_buffer(&buffer, 0, bytemuck::bytes_of(state));
        Ok(Self {
            context: context.clone(),
            config,
            rule: context.uniform(&rule),
            greatest: context.buffer("greatest gradient", 16, wgpu::BufferUsages::empty())?,
            state: buffer,
            phase: Phase::New,
            dropped: Vec::new(),
        })
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &LossScale {
        &self.config
    }

    /// The [`ScalerState`] on the device, 48 bytes, which the caller's shaders may read (`STORAGE`, `UNIFORM`, `COPY_SRC`). Its first word
    /// is the scale of the next loss, an `f32`; its third word is 1 after a step that overflowed, else 0.
    #[must_use]
    pub fn buffer(&self) -> &wgpu::Buffer {
        &self.state
    }

    /// Encodes the inspection of the first `elements` gradients of a buffer. A step may have several such buffers.
    ///
    /// # Errors
    /// [`Error::Buffer`] for a buffer of the wrong kind or size, [`Error::TooLarge`] beyond the device's limit.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn encode_inspect(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        gradients: FloatBuffer<'_>,
        elements: u64,
    ) -> Result<(), Error> {
        let context = self.context.clone();
        context.guarded(|| {
            if elements > 0 {
                let (slice, wanted) = gradients.wanted(elements);
                let bound = context.bind("gradients", slice, wanted)?;
                let half = u32::from(gradients.is_half());
                // A buffer that can be bound has fewer than 2^31 bytes.
                let inspected = Inspected { elements: elements as u32, half, ..Inspected::default() };
                let call = &mut Call::begin(&context, encoder, "hotrow.inspect");
                let uniform = context.uniform(&inspected);
                let from: &[&dyn Named] =
                    &[&("inspected", uniform), &("gradients", bound), &("greatest", &self.greatest)];
                // An invocation reads four words in each loop.
                call.run(&INSPECT, from, &Groups::capped(inspected.elements.div_ceil(1 + half), 1024));
            }
            if self.phase != Phase::Inspected {
                self.dropped.clear();
            }
            self.dropped.push(Some(watched(encoder)));
            self.phase = Phase::Inspected;
            Ok(())
        })
    }

    /// Encodes the decision on the gradients inspected since the last decision: whether they overflowed, and the next scale.
    ///
    /// # Errors
    /// [`Error::Order`] if nothing was inspected.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn encode_decide(&mut self, encoder: &mut wgpu::CommandEncoder) -> Result<(), Error> {
        let context = self.context.clone();
        context.guarded(|| {
            self.phase.decide()?;
            self.dropped.push(Some(watched(encoder)));
            let call = &mut Call::begin(&context, encoder, "hotrow.rescale");
            let from: &[&dyn Named] = &[&("rule", &self.rule), &("greatest", &self.greatest), &("state", &self.state)];
            call.run(&RESCALE, from, &Groups::Direct(1));
            Ok(())
        })
    }

    /// Waits for all submissions and returns the state, to show or to save it.
    ///
    /// # Errors
    /// [`Error::Device`] if the device is lost.
    #[cfg(not(target_family = "wasm"))]
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn state(&self) -> Result<ScalerState, Error> {
        self.context.block_on(self.state_async())
    }

    /// As [`state`](Self::state), as a future.
    ///
    /// # Errors
    /// As [`state`](Self::state).
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub async fn state_async(&self) -> Result<ScalerState, Error> {
        let bytes = 0..size_of::<ScalerState>() as u64;
        let words = self.context.guard(self.context.download_part_async(&self.state, bytes)).await?;
        Ok(bytemuck::pod_read_unaligned(bytemuck::cast_slice(&words)))
    }

    /// The state that a backward reads, if a decision has been encoded.
    pub(crate) fn decided(&self, call: &'static str) -> Result<&wgpu::Buffer, Error> {
        self.phase.decided(call)?;
        if self.dropped.iter().any(is_set) {
            let wanted = "a scaler's decision on the gradients of this step";
            return Err(Error::Order {
                call,
                wanted,
                found: "one whose encoder, or the encoder of an inspection, was dropped",
            });
        }
        Ok(&self.state)
    }
}
