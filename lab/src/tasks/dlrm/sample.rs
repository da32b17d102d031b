//! A line of a click log in memory.

use hotrow_report::trace::{CRITEO_CATEGORIES, CRITEO_COUNTS};

/// A line of a click log, from a file or generated.
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

/// ln(1 + count) as in DLRM; missing and negative counts are 0.
pub(super) fn dense_value(count: Option<i64>) -> f32 {
    (count.unwrap_or(0).max(0) as f64).ln_1p() as f32
}
