//! The host's side of a staged table, as its threads share it.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use crate::{
    error::Error,
    gpu::{
        cached::staged::{pool::Pool, traffic::Counting},
        engine::context::Context,
    },
    store::SharedStore,
};

/// The store, buffer pools and counts of a staged table, as a thread of the host needs them.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(super) context: Context,
    pub(super) store: SharedStore,
    pub(super) downloads: Pool,
    pub(super) uploads: Pool,
    pub(super) traffic: Arc<Counting>,
    /// Number of swaps of the last step: the guess for the next one.
    pub(super) expected: Arc<AtomicU32>,
    /// Number of training steps that have been carried out.
    pub(super) begun: Arc<AtomicU32>,
}

impl Host {
    pub(super) fn new(context: &Context, store: SharedStore) -> Self {
        Self {
            context: context.clone(),
            store,
            downloads: Pool::downloads(),
            uploads: Pool::uploads(),
            traffic: Arc::default(),
            expected: Arc::default(),
            begun: Arc::default(),
        }
    }

    /// A free buffer for a download of `bytes` bytes.
    pub(super) fn download(&self, bytes: u64) -> Result<wgpu::Buffer, Error> {
        self.downloads.take(&self.context, bytes)
    }

    pub(super) fn count_swaps(&self, swaps: u32) {
        self.expected.store(swaps, Ordering::Relaxed);
    }

    /// Counts a training step that is carried out.
    pub(super) fn count_step(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn begun(&self) -> u32 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Number of swaps to download at once, before the length of the list is known.
    pub(super) fn guess(&self, most: u32) -> u32 {
        let last = self.expected.load(Ordering::Relaxed);
        (last + last / 4).saturating_add(64).min(most)
    }
}
