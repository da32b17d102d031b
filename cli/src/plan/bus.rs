//! What crosses the bus when rows are pinned, in a batch and in an epoch of its batches.

use super::expect::{Sight, epoch, sight};
use super::fit::Pinned;
use super::report::Traffic;
use hotrow::scars::Skew;

/// An epoch, whatever is pinned in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bus<'a> {
    pub(super) skew: &'a Skew,
    /// Of the epoch.
    pub(super) lookups: u64,
    /// Bytes of a record.
    pub(super) record: u64,
    /// Rows are written, too.
    pub(super) training: bool,
}

impl Bus<'_> {
    pub(super) fn batch(&self, pinned: &Pinned, lookups: u64) -> Traffic {
        let Sight { distinct, misses, .. } = sight(self.skew, pinned, lookups);
        self.of(lookups, distinct.mean, misses.mean)
    }

    /// Whole batches, the shorter last one, and one flush: pinned rows that were touched.
    pub(super) fn epoch(&self, pinned: &Pinned, batch: u64) -> Traffic {
        let Sight { distinct, misses, .. } = epoch(self.skew, pinned, batch, self.lookups);
        let mut traffic = self.of(self.lookups, distinct.mean, misses.mean);
        if self.training {
            traffic.written_bytes += sight(self.skew, pinned, self.lookups).touched.mean * self.record as f64;
        }
        traffic
    }

    /// An epoch without a cache, the row of each lookup sent for itself.
    pub(super) fn uncoalesced(&self, batch: u64) -> Traffic {
        let distinct = epoch(self.skew, &Pinned::none(self.skew), batch, self.lookups).distinct.mean;
        self.of(self.lookups, distinct, self.lookups as f64)
    }

    /// So many lookups, distinct rows, and rows that cross.
    fn of(&self, lookups: u64, distinct: f64, crossing: f64) -> Traffic {
        let bytes = crossing * self.record as f64;
        Traffic {
            distinct_rows: distinct,
            index_bytes: 4.0 * lookups as f64,
            read_bytes: bytes,
            written_bytes: if self.training { bytes } else { 0.0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shorter_last_batch_is_one_of_its_own() {
        let skew = Skew::uniform(1000).unwrap();
        let bus = Bus { skew: &skew, lookups: 3000, record: 10, training: true };
        let pinned = Pinned { of_bin: vec![100.0] };
        let seen = |lookups: i32| 1.0 - 0.999_f64.powi(lookups);
        let found = bus.epoch(&pinned, 2000);
        // 900 rows miss in each batch; of 100 those that were touched are flushed.
        let read = 9000.0 * (seen(2000) + seen(1000));
        assert!((found.read_bytes - read).abs() < 1e-6, "{found:?}, wanted {read}");
        assert!((found.written_bytes - read - 1000.0 * seen(3000)).abs() < 1e-6, "{found:?}");
        assert_eq!(found.index_bytes, 12_000.0);
        assert!((bus.batch(&pinned, 2000).read_bytes * 1.5 / read - 1.0).abs() > 0.05, "no one and a half batches");
        assert_eq!(bus.uncoalesced(2000).read_bytes, 30_000.0);
        assert_eq!(Bus { training: false, ..bus }.epoch(&pinned, 2000).written_bytes, 0.0);
    }
}
