//! Bytes that a staged table has moved between host and device, counted where they are copied.

use std::{sync::Mutex, time::Duration};

use web_time::Instant;

use crate::host::locked;

/// The traffic of a staged table between host and device since its group was created.
///
/// ```
/// use hotrow::{Bags, Group, GroupConfig, Mode, Placement, adapter, prelude::*};
///
/// # fn main() -> Result<(), hotrow::Error> {
/// let Ok(context) = adapter::open_best() else { return Ok(()) };
/// let config = GroupConfig::new(&[1000], 4).with_placement(Placement::Staged).with_cache_rows(32);
/// let mut group = Group::new(&context, config)?;
/// group.forward(Bags::new(&[7], &[0, 1]), Mode::Train)?;
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
pub(crate) struct Counting(Mutex<Traffic>);

impl Counting {
    fn count(&self, add: impl FnOnce(&mut Traffic)) {
        add(&mut locked(&self.0));
    }

    pub(crate) fn listed(&self, bytes: u64) {
        self.count(|all| all.list_bytes += bytes);
    }

    pub(crate) fn gathered(&self, records: u64, bytes: u64, forwarded: usize) {
        self.count(|all| {
            all.records_in += records;
            all.bytes_in += bytes;
            all.forwarded += forwarded as u64;
        });
    }

    pub(crate) fn written(&self, records: u64, bytes: u64) {
        self.count(|all| {
            all.records_out += records;
            all.bytes_out += bytes;
        });
    }

    /// Runs `work` and counts its time as the host's.
    pub(crate) fn timed<T>(&self, work: impl FnOnce() -> T) -> (T, Duration) {
        let start = Instant::now();
        let done = work();
        let took = start.elapsed();
        self.count(|all| all.host_nanoseconds += took.as_nanos() as u64);
        (done, took)
    }

    pub(crate) fn waited(&self, time: Duration) {
        self.count(|all| all.waited_nanoseconds += time.as_nanos() as u64);
    }

    pub(crate) fn now(&self) -> Traffic {
        *locked(&self.0)
    }
}
