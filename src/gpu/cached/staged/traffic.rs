//! Bytes that a staged table has moved between host and device, counted where they are copied.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// What crossed for a staged table since it was made.
///
/// ```
/// use hotrow::{Group, GroupConfig, Placement, adapter};
///
/// # fn main() -> Result<(), hotrow::Error> {
/// let Ok(context) = adapter::open_best(adapter::Wanted::Any) else { return Ok(()) };
/// let config = GroupConfig::new(&[1000], 4).with_placement(Placement::Staged).with_cache_rows(32);
/// let mut group = Group::new(&context, config)?;
/// group.forward(&[7], &[0, 1], None)?;
/// assert_eq!(group.traffic().map(|traffic| traffic.records_in), Some(1));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Bytes of the lists of missing rows, to the host.
    pub list_bytes: u64,
    /// Records gathered for the device.
    pub records_in: u64,
    /// Bytes of the copies that brought them: the records, and notes about a few.
    pub bytes_in: u64,
    /// Records that came back to the store.
    pub records_out: u64,
    /// Bytes of the copies that brought them: with each its row, and room for records that did not leave after all.
    pub bytes_out: u64,
    /// Nanoseconds that the host took to bring records to the store and to gather others.
    pub host_nanoseconds: u64,
    /// Of these those that a call waited for; the others a prefetch has hidden.
    pub waited_nanoseconds: u64,
    /// Records that were wanted again before they had come back, and were handed over on the device.
    pub forwarded: u64,
}

impl Traffic {
    /// All bytes that crossed, both ways.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.list_bytes + self.bytes_in + self.bytes_out
    }
}

/// The same while it goes on.
#[derive(Debug, Default)]
pub(crate) struct Counting {
    list_bytes: AtomicU64,
    records_in: AtomicU64,
    bytes_in: AtomicU64,
    records_out: AtomicU64,
    bytes_out: AtomicU64,
    forwarded: AtomicU64,
    host_nanoseconds: AtomicU64,
    waited_nanoseconds: AtomicU64,
}

impl Counting {
    pub(crate) fn listed(&self, bytes: u64) {
        self.list_bytes.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn gathered(&self, records: u64, bytes: u64, forwarded: usize) {
        self.records_in.fetch_add(records, Relaxed);
        self.bytes_in.fetch_add(bytes, Relaxed);
        self.forwarded.fetch_add(forwarded as u64, Relaxed);
    }

    pub(crate) fn landed(&self, records: u64, bytes: u64) {
        self.records_out.fetch_add(records, Relaxed);
        self.bytes_out.fetch_add(bytes, Relaxed);
    }

    /// Times the host's work.
    pub(crate) fn timed<T>(&self, work: impl FnOnce() -> T) -> (T, Duration) {
        let start = Instant::now();
        let done = work();
        let took = start.elapsed();
        self.host_nanoseconds.fetch_add(took.as_nanos() as u64, Relaxed);
        (done, took)
    }

    pub(crate) fn waited(&self, time: Duration) {
        self.waited_nanoseconds.fetch_add(time.as_nanos() as u64, Relaxed);
    }

    pub(crate) fn now(&self) -> Traffic {
        Traffic {
            list_bytes: self.list_bytes.load(Relaxed),
            records_in: self.records_in.load(Relaxed),
            bytes_in: self.bytes_in.load(Relaxed),
            records_out: self.records_out.load(Relaxed),
            bytes_out: self.bytes_out.load(Relaxed),
            host_nanoseconds: self.host_nanoseconds.load(Relaxed),
            waited_nanoseconds: self.waited_nanoseconds.load(Relaxed),
            forwarded: self.forwarded.load(Relaxed),
        }
    }
}
