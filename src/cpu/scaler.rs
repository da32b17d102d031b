//! A loss scaler on the host.

use crate::{
    cpu::stages::scaler::{inspect, rescale},
    error::Error,
    scaler::{GradSlice, LossScale, Phase},
    table::abi::{ScaleRule, ScalerState},
};

/// The loss scaler for gradients on the host, for tables on any backend. [`crate::Scaler`] does the same on the device.
///
/// ```
/// use hotrow::{CpuScaler, GradSlice, LossScale, f16};
///
/// let mut scaler = CpuScaler::new(LossScale::BACKOFF)?;
/// let gradients = [f16::ONE, f16::INFINITY]; // the loss, times scaler.scale(), was too large
/// scaler.inspect(GradSlice::F16(&gradients));
/// let verdict = scaler.decide()?;
/// assert!(verdict.overflowed() && scaler.scale() == 8192.0);
/// # Ok::<_, hotrow::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CpuScaler {
    config: LossScale,
    rule: ScaleRule,
    state: ScalerState,
    greatest: u32,
    phase: Phase,
}

impl CpuScaler {
    /// Creates a scaler in its first state.
    ///
    /// # Errors
    /// [`Error::Scaler`] for an illegal configuration.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn new(config: LossScale) -> Result<Self, Error> {
        Self::with_state(config, ScalerState::new(&config)?)
    }

    /// Creates a scaler that goes on from the state of another one with the same configuration.
    ///
    /// # Errors
    /// [`Error::Scaler`] for an illegal configuration, or for a state that no such scaler can have.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn with_state(config: LossScale, state: ScalerState) -> Result<Self, Error> {
        let rule = config.rule()?;
        state.check(&config)?;
        Ok(Self { config, rule, state, greatest: 0, phase: Phase::New })
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &LossScale {
        &self.config
    }

    /// The state of the scaler.
    #[must_use]
    pub fn state(&self) -> &ScalerState {
        &self.state
    }

    /// The factor for the loss of the next step.
    #[must_use]
    pub fn scale(&self) -> f32 {
        self.state.scale
    }

    /// Inspects scaled gradients of this step. Call it for every group, and for the model's other weights.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn inspect(&mut self, gradients: GradSlice<'_>) {
        inspect(gradients, std::slice::from_mut(&mut self.greatest));
        self.phase = Phase::Inspected;
    }

    /// Decides on the inspected gradients: whether they overflowed, and the next scale. Pass the returned state to
    /// [`backward_scaled`](crate::Lookup::backward_scaled). If they overflowed, the model's other weights must not be updated either.
    ///
    /// # Errors
    /// [`Error::Order`] if nothing was inspected since the last decision.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn decide(&mut self) -> Result<ScalerState, Error> {
        self.phase.decide()?;
        rescale(&self.rule, std::slice::from_mut(&mut self.greatest), std::slice::from_mut(&mut self.state));
        Ok(self.state)
    }
}
