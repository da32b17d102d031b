//! Communication in the bytes of this crate: packed records in both directions, and indices.

use std::{
    iter::Sum,
    ops::{Add, Mul},
};

use crate::{
    config::setters,
    error::Error,
    scars::{
        distinct::Draws,
        positive, refused,
        skew::{Part, Skew},
    },
};

/// The bytes of a row and of a lookup.
///
/// Example: the [module](crate::scars).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RowBytes {
    /// Bytes of a record that is read or written back: the layout's [`stride`](crate::Layout::stride).
    pub record: u64,
    /// Bytes of a cached row on the device, metadata included.
    pub slot: u64,
    /// Bytes of the index of one lookup; 0 if indices are made on the device or should not count.
    pub index: u64,
}

setters!(RowBytes { with_index index: u64, });

impl RowBytes {
    /// A record of `record` bytes, a slot of `slot` bytes, and an index of 4.
    #[must_use]
    pub const fn new(record: u64, slot: u64) -> Self {
        Self { record, slot, index: 4 }
    }
}

/// A table, and how it is looked up.
///
/// Example: the [module](crate::scars).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Table {
    /// The lookups of each row, as a distribution.
    pub skew: Skew,
    /// The bytes of a row.
    pub bytes: RowBytes,
    /// Mean number of lookups of a sample.
    pub lookups: f64,
}

/// An epoch: its samples, and whether they train the rows.
///
/// Example: the [module](crate::scars).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Workload {
    /// Samples of an epoch (`Q / lookups` in the paper's symbols).
    pub samples: u64,
    /// Whether rows that are looked up are updated, and so written back.
    pub training: bool,
    /// The way in which lookups are drawn.
    pub draws: Draws,
}

setters!(Workload {
    with_training training: bool,
    with_draws draws: Draws,
});

impl Workload {
    /// An epoch of training, with independent lookups.
    #[must_use]
    pub const fn training(samples: u64) -> Self {
        Self { samples, training: true, draws: Draws::Independent }
    }

    /// An epoch of reading only.
    #[must_use]
    pub const fn inference(samples: u64) -> Self {
        Self { samples, training: false, draws: Draws::Independent }
    }

    /// Number of batches in an epoch, a shorter last one included.
    ///
    /// # Panics
    /// If `batch` is 0.
    #[must_use]
    pub const fn batches(&self, batch: u64) -> u64 {
        self.samples.div_ceil(batch)
    }

    /// The number of batches of each size: full batches, and the shorter last one.
    fn sizes(&self, batch: u64) -> [(f64, u64); 2] {
        [((self.samples / batch) as f64, batch), (1.0, self.samples % batch)]
    }
}

/// Expected bytes that cross the bus.
///
/// ```
/// use hotrow::scars::Bytes;
///
/// let bytes = Bytes { index: 4.0, read: 100.0, written: 50.0 };
/// assert_eq!(bytes.total(), 154.0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bytes {
    /// Indices, sent to the device.
    pub index: f64,
    /// Records read from the table's memory.
    pub read: f64,
    /// Records written to the table's memory.
    pub written: f64,
}

impl Bytes {
    /// All bytes: both directions and indices.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.index + self.read + self.written
    }
}

impl Add for Bytes {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { index: self.index + other.index, read: self.read + other.read, written: self.written + other.written }
    }
}

impl Mul<f64> for Bytes {
    type Output = Self;

    fn mul(self, times: f64) -> Self {
        Self { index: self.index * times, read: self.read * times, written: self.written * times }
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Add::add)
    }
}

impl Table {
    /// Makes a table that is looked up `lookups` times a sample.
    ///
    /// # Errors
    /// [`Error::Scars`] if `lookups` is not a finite number above 0, or if records or slots have 0 bytes.
    pub fn new(skew: Skew, bytes: RowBytes, lookups: f64) -> Result<Self, Error> {
        let lookups = positive("lookups of a sample", lookups, "give the mean number of rows a sample looks up")?;
        for (what, found) in [("bytes of a record", bytes.record), ("bytes of a slot", bytes.slot)] {
            if found == 0 {
                return Err(refused(what, "1 or more", &found, "take them from the group's layout"));
            }
        }
        Ok(Self { skew, bytes, lookups })
    }

    /// Expected bytes of a batch of `batch` samples while exactly the `pinned` hottest rows are resident
    /// (`Policy::Static`).
    ///
    /// Every other distinct row is read once and, in training, written once by its update. Pinned rows do not cross;
    /// see [`Table::flush`].
    #[must_use]
    pub fn batch(&self, workload: &Workload, samples: u64, pinned: u64) -> Bytes {
        let lookups = samples as f64 * self.lookups;
        let records = self.bytes.record as f64 * self.skew.distinct_drawn(workload.draws, lookups, pinned);
        Bytes {
            index: self.bytes.index as f64 * lookups,
            read: records,
            written: if workload.training { records } else { 0.0 },
        }
    }

    /// Expected bytes of one flush after an epoch: the pinned rows that were updated are written once each.
    #[must_use]
    pub fn flush(&self, workload: &Workload, pinned: u64) -> Bytes {
        if !workload.training {
            return Bytes::default();
        }
        let lookups = workload.samples as f64 * self.lookups;
        let pinned = self.skew.parts(0, pinned);
        let dirty: f64 = pinned.map(|part| part.rows * self.skew.seen(workload.draws, part, lookups)).sum();
        Bytes { written: self.bytes.record as f64 * dirty, ..Bytes::default() }
    }

    /// Bytes that load the pinned rows, once before the first epoch.
    #[must_use]
    pub fn load(&self, pinned: u64) -> Bytes {
        Bytes { read: self.bytes.record as f64 * pinned.min(self.skew.rows()) as f64, ..Bytes::default() }
    }

    /// Expected bytes of an epoch in batches of `batch` samples: all batches, a shorter last one included, and one
    /// flush.
    ///
    /// # Panics
    /// If `batch` is 0.
    #[must_use]
    pub fn epoch(&self, workload: &Workload, batch: u64, pinned: u64) -> Bytes {
        let batches = workload.sizes(batch).map(|(times, samples)| self.batch(workload, samples, pinned) * times);
        batches.into_iter().sum::<Bytes>() + self.flush(workload, pinned)
    }

    /// Bytes of an epoch that pinning one more row of `part` saves. Never negative, because the row's flush is one of
    /// the writes it saves.
    pub(crate) fn saved(&self, workload: &Workload, batch: u64, part: Part) -> f64 {
        let seen = |samples: u64| self.skew.seen(workload.draws, part, samples as f64 * self.lookups);
        let times: f64 = workload.sizes(batch).map(|(times, samples)| times * seen(samples)).iter().sum();
        let updates = if workload.training { times - seen(workload.samples) } else { 0.0 };
        self.bytes.record as f64 * (times + updates).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let skew = Skew::from_counts([6, 3, 2, 1, 0]).unwrap();
        Table::new(skew, RowBytes { record: 20, slot: 70, index: 4 }, 3.0).unwrap()
    }

    /// Sums row by row and batch by batch.
    fn slow(table: &Table, workload: &Workload, batch: u64, pinned: usize) -> Bytes {
        let probabilities = [6.0, 3.0, 2.0, 1.0, 0.0].map(|count| count / 12.0);
        let seen = |p: f64, samples: u64| 1.0 - (1.0 - p).powf(samples as f64 * table.lookups);
        let mut bytes = Bytes::default();
        let mut left = workload.samples;
        while left > 0 {
            let samples = left.min(batch);
            let records: f64 = probabilities[pinned..].iter().map(|&p| 20.0 * seen(p, samples)).sum();
            bytes.index += 4.0 * table.lookups * samples as f64;
            bytes.read += records;
            bytes.written += if workload.training { records } else { 0.0 };
            left -= samples;
        }
        if workload.training {
            bytes.written += probabilities[..pinned].iter().map(|&p| 20.0 * seen(p, workload.samples)).sum::<f64>();
        }
        bytes
    }

    #[test]
    fn an_epoch_is_its_batches() {
        let table = table();
        for workload in [Workload::training(23), Workload::inference(23), Workload::training(1)] {
            for batch in [1, 2, 5, 22, 23, 24, 1000] {
                for pinned in 0..=5 {
                    let found = table.epoch(&workload, batch, pinned);
                    let wanted = slow(&table, &workload, batch, pinned as usize);
                    assert!((found.index - wanted.index).abs() < 1e-9);
                    assert!((found.read - wanted.read).abs() < 1e-9);
                    assert!((found.written - wanted.written).abs() < 1e-9, "{batch} {pinned}: {found:?} {wanted:?}");
                }
            }
        }
        // The shorter batch and the flush must show.
        let workload = Workload::training(23);
        let whole = table.batch(&workload, 5, 1) * (23.0 / 5.0);
        assert!((table.epoch(&workload, 5, 1).read - whole.read).abs() > 1.0);
        assert!(table.epoch(&workload, 5, 1).written > table.epoch(&workload, 5, 1).read + 19.0);
        assert_eq!(table.flush(&workload, 99).written, table.flush(&workload, 5).written);
        assert_eq!(table.load(3).total(), 60.0);
    }

    #[test]
    fn a_pinned_row_saves_what_the_epoch_shows() {
        let table = table();
        for draws in [Draws::Independent, Draws::Epoch] {
            for training in [false, true] {
                let workload = Workload { samples: 4, training, draws };
                for batch in [1, 3, 4] {
                    for pinned in 0..5 {
                        let epoch = |pinned| table.epoch(&workload, batch, pinned).total();
                        let saved = table.saved(&workload, batch, table.skew.rest(pinned).next().unwrap());
                        assert!((epoch(pinned) - epoch(pinned + 1) - saved).abs() < 1e-9 && saved >= 0.0);
                    }
                }
            }
        }
    }

    #[test]
    fn a_whole_epoch_in_one_batch_reads_each_counted_row_once() {
        let table = table();
        let workload = Workload { draws: Draws::Epoch, ..Workload::training(4) };
        assert_eq!(table.epoch(&workload, 4, 0), Bytes { index: 48.0, read: 80.0, written: 80.0 });
        assert!(table.epoch(&Workload::training(4), 4, 0).read < 79.0, "independent lookups miss some");
    }

    #[test]
    fn what_is_no_table_is_refused() {
        let bytes = RowBytes { record: 20, slot: 70, index: 4 };
        let refused = |bytes, lookups| Table::new(Skew::uniform(3).unwrap(), bytes, lookups).is_err();
        assert!(refused(bytes, 0.0) && refused(bytes, f64::NAN) && refused(bytes, f64::INFINITY));
        assert!(refused(RowBytes { record: 0, ..bytes }, 1.0) && refused(RowBytes { slot: 0, ..bytes }, 1.0));
        assert!(!refused(RowBytes { index: 0, ..bytes }, 1.0));
    }
}
