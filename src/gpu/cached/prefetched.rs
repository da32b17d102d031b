//! A batch whose step is decided, and the records that come for it.

use std::{thread::JoinHandle, time::Instant};

use crate::{
    error::Error,
    gpu::{
        cached::staged::fetch::{Arrivals, Fetch},
        engine::bind::Batch,
    },
    table::layout::Params,
};

/// Part of a buffer that the caller handed over.
#[derive(Debug)]
pub(crate) struct Held {
    buffer: wgpu::Buffer,
    range: std::ops::Range<u64>,
}

impl Held {
    pub(crate) fn new(slice: wgpu::BufferSlice<'_>) -> Self {
        Self { buffer: slice.buffer().clone(), range: slice.offset()..slice.offset() + slice.size() }
    }

    pub(crate) fn slice(&self) -> wgpu::BufferSlice<'_> {
        self.buffer.slice(self.range.clone())
    }
}

/// A batch whose step is decided, and not carried out yet.
#[derive(Debug)]
pub(crate) struct Prefetched {
    pub(crate) params: Params,
    pub(crate) indices: Option<Held>,
    pub(crate) offsets: Held,
    pub(crate) weights: Option<Held>,
    /// Which space it is in.
    pub(crate) space: usize,
    /// A staged table's missing records.
    pub(crate) coming: Coming,
}

/// How far the records of a prefetched batch have come.
#[derive(Debug)]
pub(crate) enum Coming {
    /// The table is not staged: there is nothing for the host to do.
    Nothing,
    /// The device has been asked what is missing; or the host has failed, and may be asked again.
    Asked(Fetch),
    /// A thread waits for the answer and gathers.
    Gathering(Gathering),
    /// Ready to be copied.
    Here(Arrivals),
}

/// A thread that nobody leaves behind: it holds the store.
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
        // A panic goes on here as if there were no thread.
        let done = self.0.take().map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        if let Some((fetch, _)) = &done {
            fetch.waited(start.elapsed());
        }
        done
    }
}

impl Coming {
    /// Waits until everything is here. May be asked again after an error.
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

impl Prefetched {
    pub(crate) fn batch(&self) -> Batch<'_> {
        Batch {
            indices: self.indices.as_ref().map(Held::slice),
            offsets: self.offsets.slice(),
            weights: self.weights.as_ref().map(Held::slice),
        }
    }
}
