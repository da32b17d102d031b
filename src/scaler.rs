//! Loss scaling (OpenSeq2Seq): the rule by which the scale of the loss follows the gradients, and a scaler's state.
//!
//! A gradient in FP16 loses values below 2^-24. So the loss is multiplied with a *scale*, which multiplies every gradient, too. The
//! backward of a group divides by the scale again, in FP32, before it adds weight decay. Gradients that overflowed FP16 (infinity or NaN)
//! update no row, and the scale falls.

use half::f16;

use crate::{
    error::Error,
    table::abi::{ScaleRule, ScalerState},
};

/// The legal scales. The inverse of each is a normal float, too.
const SCALES: std::ops::RangeInclusive<f32> = f32::from_bits(1 << 23)..=f32::from_bits(253 << 23);

/// The rule that chooses the scale of the loss, step by step (OpenSeq2Seq).
///
/// Example: [`CpuScaler`](crate::CpuScaler).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LossScale {
    /// The scale never changes.
    Static {
        /// The scale.
        scale: f32,
    },
    /// As large as possible: begins at the greatest scale, falls at each overflow, and rises after `window` steps without one.
    Backoff {
        /// Least scale.
        min: f32,
        /// Greatest scale, and the first.
        max: f32,
        /// The factor by which the scale falls and rises, above 1.
        factor: f32,
        /// Number of steps without an overflow after which the scale rises, and rises again.
        window: u32,
    },
    /// Chosen by statistics. The rule takes log2 of each step's greatest gradient as normally distributed, and chooses the scale that keeps
    /// a gradient `deviations` standard deviations above the mean below 2^`log_max`. Begins at the least scale.
    ///
    /// An overflow counts as `log_max`. A step whose gradients are all zero has no logarithm, and leaves the statistics as they are.
    LogNormal {
        /// Least scale, and the first.
        min: f32,
        /// Greatest scale.
        max: f32,
        /// log2 of the least magnitude that overflows: 16 for FP16.
        log_max: f32,
        /// Decay of the mean's moving average.
        beta1: f32,
        /// Decay of the variance's moving average.
        beta2: f32,
        /// Number of standard deviations above the mean that must not overflow. 3.09 lets one step in 1,000 overflow.
        deviations: f32,
    },
}

impl Default for LossScale {
    /// [`LossScale::BACKOFF`].
    fn default() -> Self {
        Self::BACKOFF
    }
}

impl LossScale {
    /// Backoff with OpenSeq2Seq's numbers: scales 1 to 2^14, factor 2, window of 2,000 steps.
    pub const BACKOFF: Self = Self::Backoff { min: 1.0, max: 16384.0, factor: 2.0, window: 2000 };

    /// `LogNormal` with OpenSeq2Seq's numbers: scales 1 to 2^14, `log_max` 16, decays 0.99 and 0.999, 3.09 deviations.
    pub const LOG_NORMAL: Self =
        Self::LogNormal { min: 1.0, max: 16384.0, log_max: 16.0, beta1: 0.99, beta2: 0.999, deviations: 3.09 };

    /// The least and the greatest scale.
    fn range(&self) -> (f32, f32) {
        match *self {
            Self::Static { scale } => (scale, scale),
            Self::Backoff { min, max, .. } | Self::LogNormal { min, max, .. } => (min, max),
        }
    }

    /// Checks that every field is legal.
    ///
    /// # Errors
    /// [`Error::Scaler`] names the first illegal field.
    pub fn check(&self) -> Result<(), Error> {
        let (min, max) = self.range();
        let static_scale = matches!(self, Self::Static { .. });
        field(if static_scale { "scale" } else { "min" }, SCALES.contains(&min), "2^-126 to 2^126", min)?;
        field("max", SCALES.contains(&max) && max >= min, "min to 2^126", max)?;
        match *self {
            Self::Static { .. } => Ok(()),
            Self::Backoff { factor, window, .. } => {
                field("factor", factor > 1.0 && SCALES.contains(&factor), "above 1, at most 2^126", factor)?;
                field("window", window > 0, "at least 1 step", window)
            }
            Self::LogNormal { log_max, beta1, beta2, deviations, .. } => {
                field("log_max", (-60.0..=60.0).contains(&log_max), "-60 to 60", log_max)?;
                // Closer to 1, rounding would leave nothing of the correction `1 - beta^t`.
                let betas = 0.0..=1.0 - f32::EPSILON;
                field("beta1", betas.contains(&beta1), "0 to below 1", beta1)?;
                field("beta2", betas.contains(&beta2), "0 to below 1", beta2)?;
                field("deviations", (0.0..=1000.0).contains(&deviations), "0 to 1000", deviations)
            }
        }
    }

    /// The rule as the shader reads it.
    ///
    /// # Errors
    /// As [`LossScale::check`].
    #[doc(hidden)]
    pub fn rule(&self) -> Result<ScaleRule, Error> {
        self.check()?;
        let (min, max) = self.range();
        let rule = ScaleRule { min, max, ..ScaleRule::default() };
        Ok(match *self {
            Self::Static { .. } => rule,
            Self::Backoff { factor, window, .. } => {
                ScaleRule { kind: ScaleRule::BACKOFF, grow: factor, shrink: 1.0 / factor, window, ..rule }
            }
            Self::LogNormal { log_max, beta1, beta2, deviations, .. } => ScaleRule {
                kind: ScaleRule::LOG_NORMAL,
                log_max,
                beta: beta1,
                beta_rest: 1.0 - beta1,
                slow_beta: beta2,
                slow_rest: 1.0 - beta2,
                deviations,
                ..rule
            },
        })
    }
}

fn field(what: &'static str, right: bool, wanted: &str, found: impl std::fmt::Display) -> Result<(), Error> {
    let remedy = "change the loss scale's configuration";
    if right { Ok(()) } else { Err(Error::Scaler { what, wanted: wanted.into(), found: found.to_string(), remedy }) }
}

impl ScaleRule {
    /// [`ScaleRule::kind`] of [`LossScale::Backoff`].
    pub(crate) const BACKOFF: u32 = 1;
    /// [`ScaleRule::kind`] of [`LossScale::LogNormal`].
    pub(crate) const LOG_NORMAL: u32 = 2;
}

/// The bits of infinity. The bits of every finite magnitude are below.
const INFINITE: u32 = 0x7f80_0000;

impl ScalerState {
    /// Number of words of [`to_words`](Self::to_words).
    pub const WORDS: usize = size_of::<Self>() / 4;

    /// The state in which a scaler begins.
    ///
    /// # Errors
    /// As [`LossScale::check`].
    pub fn new(config: &LossScale) -> Result<Self, Error> {
        config.check()?;
        let (min, max) = config.range();
        let scale = if matches!(config, LossScale::Backoff { .. }) { max } else { min };
        Ok(Self { scale, inverse: 1.0 / scale, decay: 1.0, slow_decay: 1.0, ..Self::default() })
    }

    /// The state for a step whose loss was not scaled.
    pub(crate) fn unscaled() -> Self {
        Self { scale: 1.0, inverse: 1.0, ..Self::default() }
    }

    /// The decision of a step whose loss is not scaled: a factor of 1, no overflow.
    #[must_use]
    pub fn unscaled_decision() -> Self {
        Self { iteration: 1, ..Self::unscaled() }
    }

    /// The part of the state that backward needs. Steps with equal parts share a uniform.
    pub(crate) fn verdict(&self) -> Self {
        Self { inverse: self.inverse, overflow: self.overflow, ..Self::default() }
    }

    /// Whether the gradients of the last step overflowed, so that the step updates no row.
    #[must_use]
    pub fn overflowed(&self) -> bool {
        self.overflow != 0
    }

    /// The greatest magnitude among the last step's gradients, unscaled; not finite after an overflow.
    #[doc(hidden)]
    #[must_use]
    pub fn largest(&self) -> f32 {
        f32::from_bits(self.largest)
    }

    /// The state as words, to be saved with the model's own weights and step number. A scaler belongs to a model, so no group's checkpoint
    /// has it.
    #[doc(hidden)]
    #[must_use]
    pub fn to_words(self) -> [u32; Self::WORDS] {
        bytemuck::cast(self)
    }

    /// Restores the words of [`to_words`](Self::to_words) for a scaler of this configuration.
    ///
    /// # Errors
    /// [`Error::Scaler`] for another number of words, or for the first field that no such scaler can have.
    #[doc(hidden)]
    pub fn from_words(words: &[u32], config: &LossScale) -> Result<Self, Error> {
        let found = words.len().to_string();
        let words = <[u32; Self::WORDS]>::try_from(words).map_err(|_| Error::Scaler {
            what: "state",
            wanted: format!("{} words", Self::WORDS),
            found,
            remedy: "restore what to_words gave",
        })?;
        let state: Self = bytemuck::cast(words);
        state.check(config)?;
        Ok(state)
    }

    /// Checks that a scaler of this configuration can have this state.
    ///
    /// # Errors
    /// [`Error::Scaler`] names the first field that it cannot have.
    pub fn check(&self, config: &LossScale) -> Result<(), Error> {
        let rule = config.rule()?;
        let normal = |x: f32| SCALES.contains(&x);
        let share = |x: f32| (0.0..=1.0).contains(&x);
        let overflow = self.largest >= INFINITE;
        let fields = [
            ("scale", (rule.min..=rule.max).contains(&self.scale), self.scale),
            ("inverse", normal(self.inverse), self.inverse),
            ("overflow", self.overflow == u32::from(overflow), self.overflow as f32),
            ("last_overflow", self.last_overflow <= self.iteration, self.last_overflow as f32),
            ("overflows", self.overflows <= self.iteration, self.overflows as f32),
            ("mean", self.mean.is_finite(), self.mean),
            ("slow_mean", self.slow_mean.is_finite(), self.slow_mean),
            ("variance", self.variance.is_finite() && self.variance >= 0.0, self.variance),
            ("decay", share(self.decay), self.decay),
            ("slow_decay", share(self.slow_decay), self.slow_decay),
        ];
        match fields.into_iter().find(|(_, right, _)| !right) {
            None => Ok(()),
            Some((what, _, found)) => Err(Error::Scaler {
                what,
                wanted: "what a scaler of this configuration leaves".into(),
                found: found.to_string(),
                remedy: "restore the state of a scaler of the same configuration",
            }),
        }
    }

    /// Checks that a decision has been made, which a backward needs.
    ///
    /// # Errors
    /// [`Error::Order`] for the state of a scaler that has decided nothing.
    #[doc(hidden)]
    pub fn decided(&self) -> Result<(), Error> {
        if self.iteration > 0 && SCALES.contains(&self.inverse) {
            return Ok(());
        }
        let wanted = "a scaler's decision on the gradients of this step";
        Err(Error::Order { call: "backward_scaled", wanted, found: "the state of one that has decided nothing" })
    }
}

/// Gradients on the host, as the model returns them: row-major, one for each output.
///
/// Example: [`CpuScaler`](crate::CpuScaler).
#[derive(Clone, Copy, Debug)]
pub enum GradSlice<'a> {
    /// IEEE binary32.
    F32(&'a [f32]),
    /// FP16, with infinity where the model's own cast overflowed.
    F16(&'a [f16]),
}

impl GradSlice<'_> {
    /// The number of gradients.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::F16(values) => values.len(),
        }
    }

    /// True if there is no gradient.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The state of a scaler between its calls: a step's gradients are inspected, then decided on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    New,
    Inspected,
    Decided,
}

impl Phase {
    pub(crate) fn decide(&mut self) -> Result<(), Error> {
        if *self != Self::Inspected {
            let wanted = "an inspection of this step's gradients before it";
            return Err(Error::Order { call: "decide", wanted, found: "none since the last decision" });
        }
        *self = Self::Decided;
        Ok(())
    }

    /// Checks that a decision has been made, for `call`, a backward.
    pub(crate) fn decided(self, call: &'static str) -> Result<(), Error> {
        let found = match self {
            Self::Decided => return Ok(()),
            Self::New => "a scaler that has decided nothing",
            Self::Inspected => "gradients inspected, and nothing decided",
        };
        Err(Error::Order { call, wanted: "a scaler's decision on the gradients of this step", found })
    }
}
