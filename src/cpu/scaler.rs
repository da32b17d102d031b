//! A loss scaler on the host.

use crate::{
    cpu::stages::scaler::{inspect, rescale},
    error::Error,
    scaler::{GradSlice, LossScale, Phase},
    table::layout::{ScaleRule, ScalerState},
};

/// The loss scaler for gradients on the host, whatever backend the tables are on; [`crate::Scaler`] is its twin on the device.
///
/// ```
/// use hotrow::{CpuScaler, GradSlice, LossScale};
///
/// let mut scaler = CpuScaler::new(LossScale::BACKOFF)?;
/// let gradients = [0x3c00, 0x7c00]; // 1 and infinity in FP16: the loss, times scaler.scale(), was too large
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
    /// A scaler that has seen nothing.
    ///
    /// # Errors
    /// [`Error::Scaler`] for a configuration that cannot be.
    pub fn new(config: LossScale) -> Result<Self, Error> {
        Self::with_state(config, ScalerState::new(&config)?)
    }

    /// One that goes on where another of the same configuration was.
    ///
    /// # Errors
    /// [`Error::Scaler`] for a configuration that cannot be, or a state that it cannot have left.
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

    /// Everything it keeps.
    #[must_use]
    pub fn state(&self) -> &ScalerState {
        &self.state
    }

    /// What the loss of the next step is to be multiplied with.
    #[must_use]
    pub fn scale(&self) -> f32 {
        self.state.scale
    }

    /// Looks at scaled gradients of this step: those of every group, and those of the model's other weights.
    pub fn inspect(&mut self, gradients: GradSlice<'_>) {
        inspect(gradients, std::slice::from_mut(&mut self.greatest));
        self.phase = Phase::Inspected;
    }

    /// Decides on what was inspected: whether it overflowed, and the next scale. The state returned is for
    /// [`backward_scaled`](crate::Lookup::backward_scaled); where it overflowed the model's other weights must be left, too.
    ///
    /// # Errors
    /// [`Error::Order`] if nothing was inspected since the last decision.
    pub fn decide(&mut self) -> Result<ScalerState, Error> {
        self.phase.decide()?;
        rescale(&self.rule, std::slice::from_mut(&mut self.greatest), std::slice::from_mut(&mut self.state));
        Ok(self.state)
    }
}
