//! A line of a click log in memory, from a file or generated.

use crate::task::Needed;
use hotrow_cli::trace::{CRITEO_CATEGORIES, CRITEO_COUNTS};
use std::collections::TryReserveError;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) dense: [f32; CRITEO_COUNTS],
    /// The row of each table.
    pub(super) rows: [u32; CRITEO_CATEGORIES],
    pub(super) label: bool,
}

impl Sample {
    pub(super) fn new(counts: [Option<i64>; CRITEO_COUNTS], rows: [u32; CRITEO_CATEGORIES], label: bool) -> Self {
        Self { dense: counts.map(dense_value), rows, label }
    }
}

/// Training samples in memory: all, or those that a rank needs.
#[derive(Debug)]
pub(super) struct Kept {
    /// The number of all.
    pub(super) count: usize,
    /// The places of those that are kept, ascending; `None` for all.
    places: Option<Vec<u32>>,
    samples: Vec<Sample>,
    /// The number of samples that were pushed.
    pushed: usize,
}

impl Kept {
    /// Room for the samples that are needed of so many.
    pub(super) fn new(count: usize, needed: Needed<'_>) -> Result<Self, TryReserveError> {
        let (places, mut samples) = (needed(count), Vec::new());
        samples.try_reserve_exact(places.as_ref().map_or(count, Vec::len))?;
        Ok(Self { count, places, samples, pushed: 0 })
    }

    /// Takes the next sample, if it is needed.
    pub(super) fn push(&mut self, sample: Sample) {
        let next = self.samples.len();
        if self.places.as_ref().is_none_or(|places| places.get(next) == Some(&(self.pushed as u32))) {
            self.samples.push(sample);
        }
        self.pushed += 1;
    }

    /// The sample at a place among all.
    pub(super) fn at(&self, place: u32) -> &Sample {
        let Some(places) = &self.places else { return &self.samples[place as usize] };
        let at = places.partition_point(|&other| other < place);
        assert_eq!(places.get(at), Some(&place), "wanted a sample that this rank needs");
        &self.samples[at]
    }

    /// The number of samples in memory.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.samples.len()
    }
}

/// ln(1 + count) as in DLRM; missing and negative counts are 0.
pub(super) fn dense_value(count: Option<i64>) -> f32 {
    (count.unwrap_or(0).max(0) as f64).ln_1p() as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_as_dlrm_takes_them() {
        assert_eq!([None, Some(-3), Some(0)].map(dense_value), [0.0; 3]);
        assert_eq!(dense_value(Some(1)), std::f32::consts::LN_2);
        assert_eq!(dense_value(Some(i64::MAX)), (2f64.powi(63)).ln() as f32);
    }
}
