//! One memory for cached rows and the batch (SCARS, eq. 7).

use crate::{
    config::setters,
    error::Error,
    scars::{refused, traffic::Workload},
};

/// The device's memory: M of SCARS, eq. 7, `b = (M - |C| d) / a`.
///
/// Example: the [module](crate::scars).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Budget {
    /// Bytes for cached rows and the batch together: M.
    pub bytes: u64,
    /// Bytes that a sample of a batch takes, activations included: a. With 0 only the epoch bounds a batch.
    pub sample: u64,
    /// The smallest batch, in samples. The paper's own problem has 1. Its answer is often the smallest batch: without a
    /// cost of its own, a batch of one sample is as cheap as any other and leaves most memory to rows.
    pub smallest_batch: u64,
    /// The fixed cost of a batch, as the bytes that could cross the bus in that time.
    pub batch_cost: f64,
}

setters!(Budget {
    with_smallest_batch smallest_batch: u64,
    with_batch_cost batch_cost: f64,
});

impl Budget {
    /// A memory of `bytes` bytes, of which a sample takes `sample`. A batch has at least one sample and no cost of its own.
    #[must_use]
    pub const fn new(bytes: u64, sample: u64) -> Self {
        Self { bytes, sample, smallest_batch: 1, batch_cost: 0.0 }
    }

    /// The smallest and the largest batch that fit, in samples; the largest is what fits without cached rows, at most
    /// an epoch.
    pub(crate) fn batches(&self, workload: &Workload) -> Result<(u64, u64), Error> {
        let remedy = "raise the budget, or make the smallest batch or what a sample takes smaller";
        if self.smallest_batch == 0 || self.smallest_batch > workload.samples {
            let wanted = format!("1 to the {} samples of an epoch", workload.samples);
            return Err(refused("smallest batch", wanted, &self.smallest_batch, "give samples"));
        }
        if !(self.batch_cost.is_finite() && self.batch_cost >= 0.0) {
            return Err(refused("cost of a batch", "0 or more bytes", &self.batch_cost, "give bytes"));
        }
        let most = self.bytes.checked_div(self.sample).unwrap_or(u64::MAX).min(workload.samples);
        if most < self.smallest_batch {
            let wanted = format!("{} bytes or more", u128::from(self.sample) * u128::from(self.smallest_batch));
            return Err(refused("budget", wanted, &self.bytes, remedy));
        }
        Ok((self.smallest_batch, most))
    }

    /// Bytes left for rows beside a batch: `M - a b`.
    pub(crate) const fn for_rows(&self, batch: u64) -> u64 {
        self.bytes.saturating_sub(self.sample.saturating_mul(batch))
    }

    /// The largest batch beside rows of `rows` bytes (eq. 7, rounded down); `None` if there is no room for one sample.
    pub(crate) fn batch_beside(&self, rows: u128, workload: &Workload) -> Option<u64> {
        let left = u64::try_from(u128::from(self.bytes).checked_sub(rows)?).ok()?;
        let batch = left.checked_div(self.sample).unwrap_or(u64::MAX).min(workload.samples);
        (batch > 0).then_some(batch)
    }
}
