//! A prefetched batch: its step is decided, and its missing records are on their way.

use std::{
    sync::{Arc, atomic::AtomicBool},
    task::Waker,
    thread::JoinHandle,
};

use web_time::Instant;

use crate::{
    error::Error,
    gpu::{
        cached::staged::fetch::{Arrivals, Fetch},
        engine::{bind::Batch, wait::CALLS_WAIT},
    },
    table::{abi::Params, step_state::is_set},
};

/// Part of a buffer of the caller's.
#[derive(Debug)]
struct Held {
    buffer: wgpu::Buffer,
    range: std::ops::Range<u64>,
}

impl Held {
    fn new(slice: wgpu::BufferSlice<'_>) -> Self {
        Self { buffer: slice.buffer().clone(), range: slice.offset()..slice.offset() + slice.size() }
    }

    fn slice(&self) -> wgpu::BufferSlice<'_> {
        self.buffer.slice(self.range.clone())
    }
}

/// The caller's batch, kept until its forward.
#[derive(Debug)]
pub(crate) struct HeldBatch {
    indices: Option<Held>,
    offsets: Held,
    weights: Option<Held>,
}

/// A batch whose step is decided and not yet carried out.
#[derive(Debug)]
pub struct Prefetched {
    pub(crate) params: Params,
    /// `None` for rows that a caller's shaders want: their step has no outputs.
    pub(crate) batch: Option<HeldBatch>,
    /// The index of the batch's step scratch.
    pub(crate) space: usize,
    /// The missing records of a staged table.
    pub(crate) coming: Coming,
    /// The number of its forward; 0 for rows that shaders want.
    pub(crate) number: u32,
    /// Whether the encoder of the prefetch was dropped; `None` if its commands are not the caller's to submit.
    pub(crate) dropped: Option<Arc<AtomicBool>>,
    /// The encoder of its forward was dropped.
    pub(crate) again: bool,
    /// A later step has overwritten its lists in step scratch.
    pub(crate) lost: bool,
}

impl Prefetched {
    /// Whether the prefetch has had no effect. A thread that gathers finds out for itself.
    pub(crate) fn dropped(&self) -> bool {
        match &self.coming {
            Coming::Asked(fetch) => fetch.dropped(),
            Coming::Nothing => is_set(&self.dropped),
            Coming::Gathering(_) | Coming::Here(_) => false,
        }
    }
}

/// The progress of the host's part in a prefetched batch.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a group has one")]
pub(crate) enum Coming {
    /// The table is not staged: the host has no part.
    Nothing,
    /// The device has been asked for the list of missing rows. After a failure of the host the fetch may run again.
    Asked(Fetch),
    /// A thread waits for the list and gathers the records.
    Gathering(Gathering),
    /// The records are ready to be copied to the device.
    Here(Arrivals),
}

/// A thread that gathers records. Dropping this value waits for the thread, because the thread holds the store.
#[derive(Debug)]
pub(crate) struct Gathering(Option<JoinHandle<(Fetch, Result<Arrivals, Error>)>>);

impl Drop for Gathering {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            let _nobody_asks = thread.join();
        }
    }
}

impl Gathering {
    pub(crate) fn start(mut fetch: Fetch) -> Self {
        Self(Some(std::thread::spawn(move || {
            let found = fetch.run_meanwhile();
            (fetch, found)
        })))
    }

    pub(crate) fn join(mut self) -> Option<(Fetch, Result<Arrivals, Error>)> {
        let start = Instant::now();
        // A panic of the thread goes on in the caller.
        let done = self.0.take().map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        if let Some((fetch, _)) = &done {
            fetch.waited(start.elapsed());
        }
        done
    }
}

impl Coming {
    /// True if [`arrive`](Self::arrive) need not wait for the device or for a thread.
    pub(crate) fn ready(&self) -> bool {
        match self {
            Self::Asked(fetch) => fetch.ready(),
            Self::Gathering(thread) => thread.0.as_ref().is_none_or(JoinHandle::is_finished),
            Self::Nothing | Self::Here(_) => true,
        }
    }

    /// Has `waker` woken when another download has come.
    pub(crate) fn wake(&self, waker: &Waker) {
        if let Self::Asked(fetch) = self {
            fetch.wake(waker);
        }
    }

    /// Starts a thread that gathers the records. A browser has no threads: there the forward gathers them.
    pub(crate) fn gather_meanwhile(&mut self) {
        if !CALLS_WAIT {
            return;
        }
        *self = match std::mem::replace(self, Self::Nothing) {
            Self::Asked(fetch) => Self::Gathering(Gathering::start(fetch)),
            other => other,
        };
    }

    /// Whether [`arrive_at_once`](Self::arrive_at_once) may follow. Asks the device for what a first download lacked.
    pub(crate) fn all_here(&mut self) -> Result<bool, Error> {
        if !self.ready() {
            return Ok(false);
        }
        match self {
            Self::Asked(fetch) => fetch.asked_more().map(|more| !more),
            _ => Ok(true),
        }
    }

    /// Once [`all_here`](Self::all_here): has a thread gather the records, if there are any, and returns whether it does. In a browser,
    /// which has no threads, it does not.
    pub(crate) fn gather_on_thread(&mut self) -> bool {
        let Self::Asked(fetch) = self else { return false };
        if fetch.is_empty() {
            return false;
        }
        fetch.here = true;
        self.gather_meanwhile();
        CALLS_WAIT
    }

    /// As [`arrive`](Self::arrive), once [`all_here`](Self::all_here): gathers the records, and waits for nothing.
    pub(crate) fn arrive_at_once(&mut self) -> Result<(), Error> {
        if let Self::Asked(fetch) = self {
            fetch.here = true;
        }
        self.arrive()
    }

    /// Waits until the records are gathered. May be called again after an error.
    pub(crate) fn arrive(&mut self) -> Result<(), Error> {
        let done = match std::mem::replace(self, Self::Nothing) {
            Self::Gathering(thread) => thread.join(),
            Self::Asked(mut fetch) => {
                let found = fetch.run();
                Some((fetch, found))
            }
            other => {
                *self = other;
                None
            }
        };
        match done {
            None => Ok(()),
            Some((_, Ok(arrivals))) => {
                *self = Self::Here(arrivals);
                Ok(())
            }
            Some((fetch, Err(error))) => {
                *self = Self::Asked(fetch);
                Err(error)
            }
        }
    }
}

impl HeldBatch {
    pub(crate) fn new(batch: &Batch<'_>) -> Self {
        let (indices, weights) = (batch.indices.map(Held::new), batch.weights.map(Held::new));
        Self { indices, offsets: Held::new(batch.offsets), weights }
    }

    pub(crate) fn batch(&self) -> Batch<'_> {
        Batch {
            indices: self.indices.as_ref().map(Held::slice),
            offsets: self.offsets.slice(),
            weights: self.weights.as_ref().map(Held::slice),
        }
    }
}
