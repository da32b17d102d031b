//! The bytes that cross the bus in a batch and in an epoch while some rows are pinned.

use crate::scars::{
    sets::{forecast::Forecast, pinned::PinnedRows},
    skew::Skew,
    traffic::Bytes,
};

/// Expected traffic of a batch or an epoch.
///
/// Example: the [module](crate::scars::sets).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct RowTraffic {
    /// Distinct rows of each batch, summed over the batches.
    pub distinct_rows: f64,
    /// Indices, records read and records written.
    pub bytes: Bytes,
}

/// An epoch whose traffic is computed, for any pinned rows.
///
/// Example: the [module](crate::scars::sets).
#[derive(Clone, Copy, Debug)]
pub struct PinnedTraffic<'a> {
    /// The number of lookups of each row.
    pub skew: &'a Skew,
    /// Lookups of the epoch.
    pub lookups: u64,
    /// Bytes of a record.
    pub record: u64,
    /// Whether the rows of a batch are updated and written back.
    pub training: bool,
}

impl PinnedTraffic<'_> {
    /// The traffic of a batch of `lookups` lookups: its indices, and each distinct row that is not pinned, read and in training also
    /// written.
    #[must_use]
    pub fn batch(&self, pinned: &PinnedRows, lookups: u64) -> RowTraffic {
        let Forecast { distinct, misses, .. } = Forecast::batch(self.skew, pinned, lookups);
        self.of(lookups, distinct.mean, misses.mean)
    }

    /// The traffic of the epoch in batches of `batch` lookups, the shorter last batch included, and of one flush of the updated pinned
    /// rows.
    ///
    /// # Panics
    /// If `batch` is 0.
    #[must_use]
    pub fn epoch(&self, pinned: &PinnedRows, batch: u64) -> RowTraffic {
        let Forecast { distinct, misses, .. } = Forecast::epoch(self.skew, pinned, batch, self.lookups);
        let mut traffic = self.of(self.lookups, distinct.mean, misses.mean);
        if self.training {
            let touched = Forecast::batch(self.skew, pinned, self.lookups).touched;
            traffic.bytes.written += touched.mean * self.record as f64;
        }
        traffic
    }

    /// The traffic of the epoch without a cache, if the row of each lookup is sent by itself.
    ///
    /// # Panics
    /// If `batch` is 0.
    #[must_use]
    pub fn uncoalesced(&self, batch: u64) -> RowTraffic {
        let distinct = Forecast::epoch(self.skew, &PinnedRows::none(self.skew), batch, self.lookups).distinct;
        self.of(self.lookups, distinct.mean, self.lookups as f64)
    }

    fn of(&self, lookups: u64, distinct_rows: f64, crossing_rows: f64) -> RowTraffic {
        let records = crossing_rows * self.record as f64;
        let written = if self.training { records } else { 0.0 };
        RowTraffic { distinct_rows, bytes: Bytes { index: 4.0 * lookups as f64, read: records, written } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shorter_last_batch_is_one_of_its_own() {
        let skew = Skew::uniform(1000).unwrap();
        let epoch = PinnedTraffic { skew: &skew, lookups: 3000, record: 10, training: true };
        let pinned = PinnedRows::expected(&skew, |_| 100.0);
        let seen = |lookups: i32| 1.0 - 0.999_f64.powi(lookups);
        let found = epoch.epoch(&pinned, 2000).bytes;
        // In each batch 900 rows can miss; the flush writes those of the 100 pinned rows that were touched.
        let read = 9000.0 * (seen(2000) + seen(1000));
        assert!((found.read - read).abs() < 1e-6, "{found:?}, wanted {read}");
        assert!((found.written - read - 1000.0 * seen(3000)).abs() < 1e-6, "{found:?}");
        assert_eq!(found.index, 12_000.0);
        assert!((epoch.batch(&pinned, 2000).bytes.read * 1.5 / read - 1.0).abs() > 0.05, "no one and a half batches");
        assert_eq!(epoch.uncoalesced(2000).bytes.read, 30_000.0);
        assert_eq!(PinnedTraffic { training: false, ..epoch }.epoch(&pinned, 2000).bytes.written, 0.0);
    }
}
