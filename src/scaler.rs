//! Loss scaling (OpenSeq2Seq): how the scale of the loss follows the gradients, and what a scaler keeps.
//!
//! A gradient in FP16 loses what is below 2^-24. So the loss is multiplied with a *scale*, and with it every gradient; the backward
//! of a group divides by it again, in FP32, before weight decay is added. Gradients that overflowed FP16 (infinity or NaN) update
//! nothing, and the scale falls.

use crate::{
    error::Error,
    table::layout::{ScaleRule, ScalerState},
};

/// Least and greatest scale that can be: the inverse is a normal float, too.
const SCALES: std::ops::RangeInclusive<f32> = f32::from_bits(1 << 23)..=f32::from_bits(253 << 23);

/// How the scale of the loss is chosen, step by step (OpenSeq2Seq).
///
/// Example: [`CpuScaler`](crate::CpuScaler).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LossScale {
    /// Always the same.
    Static {
        /// The scale.
        scale: f32,
    },
    /// As large as it can be: begins at the greatest, falls at each overflow, rises after a while without one.
    Backoff {
        /// Least scale.
        min: f32,
        /// Greatest scale, and the first.
        max: f32,
        /// What it falls and rises by, above 1.
        factor: f32,
        /// Steps without an overflow after which it rises, and rises again.
        window: u32,
    },
    /// By statistics: takes log2 of each step's greatest gradient for normally distributed, and chooses the scale that keeps it
    /// below 2^`log_max`, be it `deviations` standard deviations above its mean. Begins at the least scale.
    ///
    /// Where a step overflowed, its logarithm counts as `log_max`. A step whose gradients are all zero has none, and leaves the
    /// statistics as they are.
    LogNormal {
        /// Least scale, and the first.
        min: f32,
        /// Greatest scale.
        max: f32,
        /// log2 of what overflows: 16 for FP16.
        log_max: f32,
        /// Decay of the mean's moving average.
        beta1: f32,
        /// Decay of the variance's.
        beta2: f32,
        /// Standard deviations above the mean that must not overflow; 3.09: one step in 1,000.
        deviations: f32,
        /// True: as the original, `OpenSeq2Seq`'s `LogMaxScaler`, its defects too. There an overflow counts as 2^`log_max`
        /// instead of its logarithm, and holds the scale at its least for about 11,000 steps; a step of zeros sends the mean to
        /// minus infinity, and the scale to its greatest for ever; and the target is 2^16 whatever `log_max` is.
        original: bool,
    },
}

impl Default for LossScale {
    /// [`LossScale::BACKOFF`].
    fn default() -> Self {
        Self::BACKOFF
    }
}

impl LossScale {
    /// Backoff with OpenSeq2Seq's numbers: 1 to 2^14, by 2, after 2,000 steps.
    pub const BACKOFF: Self = Self::Backoff { min: 1.0, max: 16384.0, factor: 2.0, window: 2000 };

    /// `LogNormal` with OpenSeq2Seq's numbers: 1 to 2^14, 2^16, 0.99, 0.999, 3.09.
    pub const LOG_NORMAL: Self = Self::log_normal(false);

    /// The same as the original computes it.
    pub const LOG_NORMAL_ORIGINAL: Self = Self::log_normal(true);

    const fn log_normal(original: bool) -> Self {
        let (min, max, log_max) = (1.0, 16384.0, 16.0);
        Self::LogNormal { min, max, log_max, beta1: 0.99, beta2: 0.999, deviations: 3.09, original }
    }

    /// Least and greatest scale.
    fn range(&self) -> (f32, f32) {
        match *self {
            Self::Static { scale } => (scale, scale),
            Self::Backoff { min, max, .. } | Self::LogNormal { min, max, .. } => (min, max),
        }
    }

    /// Whether this can be.
    ///
    /// # Errors
    /// [`Error::Scaler`] names the first field that cannot.
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
                // So near to 1 that nothing is left of the correction.
                let betas = 0.0..=1.0 - f32::EPSILON;
                field("beta1", betas.contains(&beta1), "0 to below 1", beta1)?;
                field("beta2", betas.contains(&beta2), "0 to below 1", beta2)?;
                field("deviations", (0.0..=1000.0).contains(&deviations), "0 to 1000", deviations)
            }
        }
    }

    /// The same as the shader wants it.
    ///
    /// # Errors
    /// As [`LossScale::check`].
    pub fn rule(&self) -> Result<ScaleRule, Error> {
        self.check()?;
        let (min, max) = self.range();
        let rule = ScaleRule { min, max, ..ScaleRule::default() };
        Ok(match *self {
            Self::Static { .. } => rule,
            Self::Backoff { factor, window, .. } => {
                ScaleRule { kind: ScaleRule::BACKOFF, grow: factor, shrink: 1.0 / factor, window, ..rule }
            }
            Self::LogNormal { log_max, beta1, beta2, deviations, original, .. } => ScaleRule {
                kind: ScaleRule::LOG_NORMAL,
                target_log: if original { 16.0 } else { log_max },
                overflow_log: if original { libm::exp2f(log_max) } else { log_max },
                beta: beta1,
                beta_rest: 1.0 - beta1,
                slow_beta: beta2,
                slow_rest: 1.0 - beta2,
                deviations,
                original: u32::from(original),
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
    /// Of [`LossScale::LogNormal`].
    pub(crate) const LOG_NORMAL: u32 = 2;
    /// Stands for a mean of minus infinity.
    pub(crate) const LOWEST: f32 = f32::MIN;
}

/// Bits of infinity: those of every finite magnitude are below.
const INFINITE: u32 = 0x7f80_0000;

impl ScalerState {
    /// How many words [`to_words`](Self::to_words) gives.
    pub const WORDS: usize = size_of::<Self>() / 4;

    /// What a scaler begins with.
    ///
    /// # Errors
    /// As [`LossScale::check`].
    pub fn new(config: &LossScale) -> Result<Self, Error> {
        config.check()?;
        let (min, max) = config.range();
        let scale = if matches!(config, LossScale::Backoff { .. }) { max } else { min };
        Ok(Self { scale, inverse: 1.0 / scale, decay: 1.0, slow_decay: 1.0, ..Self::default() })
    }

    /// Of a step whose loss was not scaled.
    pub(crate) fn unscaled() -> Self {
        Self { scale: 1.0, inverse: 1.0, ..Self::default() }
    }

    /// What backward needs of it: steps with the same verdict share a uniform.
    pub(crate) fn verdict(&self) -> Self {
        Self { inverse: self.inverse, overflow: self.overflow, ..Self::default() }
    }

    /// Whether the gradients of the last step overflowed, so that it updates nothing.
    #[must_use]
    pub fn overflowed(&self) -> bool {
        self.overflow != 0
    }

    /// The greatest magnitude among the last step's gradients, unscaled; not finite where it overflowed.
    #[must_use]
    pub fn largest(&self) -> f32 {
        f32::from_bits(self.largest)
    }

    /// The state as words, for whatever file the model's own weights and step number are in: a scaler belongs to a model, and so
    /// to no group and no group's checkpoint.
    #[must_use]
    pub fn to_words(self) -> [u32; Self::WORDS] {
        bytemuck::cast(self)
    }

    /// A state that [`to_words`](Self::to_words) gave, for a scaler of this configuration.
    ///
    /// # Errors
    /// [`Error::Scaler`] for another number of words, and names the first that no such scaler can have left.
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

    /// Whether a scaler of this configuration can have left it.
    ///
    /// # Errors
    /// [`Error::Scaler`] names the first field.
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

    /// Something has been decided, so that a backward may go by it.
    pub(crate) fn decided(&self) -> Result<(), Error> {
        if self.iteration > 0 && SCALES.contains(&self.inverse) {
            return Ok(());
        }
        let wanted = "a scaler's decision on the gradients of this step";
        Err(Error::Order { call: "backward_scaled", wanted, found: "the state of one that has decided nothing" })
    }
}

/// Gradients on the host, as they come from the model: row-major, one for each output.
///
/// Example: [`CpuScaler`](crate::CpuScaler).
#[derive(Clone, Copy, Debug)]
pub enum GradSlice<'a> {
    /// IEEE binary32.
    F32(&'a [f32]),
    /// IEEE binary16, by its bits: infinity where the model's own cast overflowed.
    F16(&'a [u16]),
}

impl GradSlice<'_> {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::F16(values) => values.len(),
        }
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Which of a scaler's calls may come: what is inspected must be decided, and only what was inspected can be.
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

    /// For `call`, a backward.
    pub(crate) fn decided(self, call: &'static str) -> Result<(), Error> {
        let found = match self {
            Self::Decided => return Ok(()),
            Self::New => "a scaler that has decided nothing",
            Self::Inspected => "gradients inspected, and nothing decided",
        };
        Err(Error::Order { call, wanted: "a scaler's decision on the gradients of this step", found })
    }
}
