//! Samples of a click log in memory, whatever they come from.

use crate::trace::{CRITEO_CATEGORIES, CRITEO_COUNTS};
use std::collections::TryReserveError;

/// Samples one after another: 157 bytes each.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Samples {
    /// `[samples, 13]`: what [`dense_value`] makes of the counts.
    pub(crate) dense: Vec<f32>,
    /// `[samples, 26]`: the row of each table.
    pub(crate) rows: Vec<u32>,
    /// `[samples]`: 0 or 1.
    pub(crate) labels: Vec<u8>,
}

impl Samples {
    /// None, with room for `samples`.
    pub(crate) fn with_room(samples: usize) -> Result<Self, TryReserveError> {
        let mut room = Self::default();
        room.dense.try_reserve_exact(samples.saturating_mul(CRITEO_COUNTS))?;
        room.rows.try_reserve_exact(samples.saturating_mul(CRITEO_CATEGORIES))?;
        room.labels.try_reserve_exact(samples)?;
        Ok(room)
    }

    pub(crate) fn push(&mut self, counts: [Option<i64>; CRITEO_COUNTS], rows: [u32; CRITEO_CATEGORIES], label: bool) {
        self.dense.extend(counts.map(dense_value));
        self.rows.extend(rows);
        self.labels.push(u8::from(label));
    }

    pub(crate) fn len(&self) -> usize {
        self.labels.len()
    }

    /// The dense features of a sample.
    pub(crate) fn dense(&self, sample: usize) -> &[f32] {
        &self.dense[sample * CRITEO_COUNTS..][..CRITEO_COUNTS]
    }

    /// The row of each table for a sample.
    pub(crate) fn rows(&self, sample: usize) -> &[u32] {
        &self.rows[sample * CRITEO_CATEGORIES..][..CRITEO_CATEGORIES]
    }
}

/// ln(1 + count) as in DLRM: a missing count is 0, and so is a negative one.
pub(crate) fn dense_value(count: Option<i64>) -> f32 {
    (count.unwrap_or(0).max(0) as f64).ln_1p() as f32
}

#[cfg(test)]
mod tests {
    use super::dense_value;

    #[test]
    fn counts_as_dlrm_takes_them() {
        assert_eq!([None, Some(-3), Some(0)].map(dense_value), [0.0; 3]);
        assert_eq!(dense_value(Some(1)), std::f32::consts::LN_2);
        assert_eq!(dense_value(Some(i64::MAX)), (2f64.powi(63)).ln() as f32);
    }
}
