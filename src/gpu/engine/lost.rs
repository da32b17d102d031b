//! A lost device: what wgpu says then, as an error that names it; and the moments at which a test loses one.

use std::{
    fmt::Display,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use crate::error::Error;

/// Whether the device is lost. wgpu tells only one callback, which is its owner's to set, and refuses later calls in words of their own ("buffer is
/// invalid"). But no buffer of a lost device can be written. A browser lets it be written, and names the loss itself.
pub(crate) fn is_lost(device: &wgpu::Device) -> bool {
    let scopes =
        [wgpu::ErrorFilter::OutOfMemory, wgpu::ErrorFilter::Validation].map(|kind| device.push_error_scope(kind));
    let buffer = device.create_buffer(&wgpu::BufferDescriptor {
        label: Some("hotrow.probe"),
        size: 4,
        usage: wgpu::BufferUsages::COPY_SRC,
        mapped_at_creation: true,
    });
    let lost = buffer.get_mapped_range_mut(..).is_err();
    // From the last scope to the first; what they found does not matter.
    scopes.into_iter().rev().for_each(drop);
    lost
}

/// What wgpu has found, as an error that says whether the device is lost.
pub(crate) fn failed(device: &wgpu::Device, found: &impl Display) -> Error {
    let reason = if is_lost(device) { format!("device lost ({found})") } else { found.to_string() };
    Error::Device { reason }
}

/// Counts submissions, maps and waits, and loses the device before one of the former two if a test asks for it.
#[derive(Debug, Default)]
pub(crate) struct Moments {
    submissions: AtomicU64,
    maps: AtomicU64,
    waits: AtomicU64,
    last: AtomicU64,
}

impl Moments {
    /// To be called before each submission.
    pub(crate) fn submit(&self, device: &wgpu::Device) {
        self.submissions.fetch_add(1, Relaxed);
        self.pass(device);
    }

    /// To be called before each map.
    pub(crate) fn map(&self, device: &wgpu::Device) {
        self.maps.fetch_add(1, Relaxed);
        self.pass(device);
    }

    /// To be called before the thread may wait for the device.
    pub(crate) fn wait(&self) {
        self.waits.fetch_add(1, Relaxed);
    }

    fn pass(&self, device: &wgpu::Device) {
        let passed = self.submissions.load(Relaxed) + self.maps.load(Relaxed);
        if passed == self.last.load(Relaxed) {
            device.destroy();
        }
    }

    /// The numbers of submissions and waits so far.
    pub(crate) fn counts(&self) -> [u64; 2] {
        [&self.submissions, &self.waits].map(|count| count.load(Relaxed))
    }

    /// Loses the device at the `last` moment from the context's beginning, counted from 1.
    pub(crate) fn end_at(&self, last: u64) {
        self.last.store(last, Relaxed);
    }
}
