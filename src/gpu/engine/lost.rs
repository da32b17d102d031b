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

/// Counts submissions and maps, and loses the device before one of them if a test asks for it.
#[derive(Debug, Default)]
pub(crate) struct Moments {
    passed: AtomicU64,
    last: AtomicU64,
}

impl Moments {
    /// To be called before each submission and map.
    pub(crate) fn pass(&self, device: &wgpu::Device) {
        if self.passed.fetch_add(1, Relaxed) + 1 == self.last.load(Relaxed) {
            device.destroy();
        }
    }

    /// Loses the device at the `last` moment from the context's beginning, counted from 1.
    pub(crate) fn end_at(&self, last: u64) {
        self.last.store(last, Relaxed);
    }
}
