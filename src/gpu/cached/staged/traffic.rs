//! Bytes that a staged table has moved between host and device, counted where they are copied.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use web_time::Instant;

/// The traffic of a staged table between host and device since its group was created.
///
/// ```
/// use hotrow::{Group, GroupConfig, Placement, adapter, prelude::*};
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
    /// Bytes of the lists of missing rows, sent to the host.
    pub list_bytes: u64,
    /// Records that the host gathered for the device.
    pub records_in: u64,
    /// Bytes copied to the device: the gathered records and a few notes.
    pub bytes_in: u64,
    /// Records that were written back to the store.
    pub records_out: u64,
    /// Bytes copied to the host for these records: the records, their rows, and room for records that could have left but did not.
    pub bytes_out: u64,
    /// Nanoseconds that the host spent on writing records to the store and on gathering records.
    pub host_nanoseconds: u64,
    /// The part of `host_nanoseconds` that a call waited for. A prefetch hides the rest.
    pub waited_nanoseconds: u64,
    /// Records that a step needed before they were back in the store. The device forwarded them.
    pub forwarded: u64,
}

impl Traffic {
    /// All bytes that crossed, both ways.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.list_bytes + self.bytes_in + self.bytes_out
    }
}

/// A [`Traffic`] that counts while threads work.
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

    pub(crate) fn written(&self, records: u64, bytes: u64) {
        self.records_out.fetch_add(records, Relaxed);
        self.bytes_out.fetch_add(bytes, Relaxed);
    }

    /// Runs `work` and counts its time as the host's.
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
