//! Something that comes back to the host with the caller's submission.

use std::{
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::Duration,
};

use super::pool::Pool;
use crate::Error;

/// After the device has been waited for, another thread may still be about to tell of it. Whoever has not submitted waits so long for
/// an error.
const PATIENCE: Duration = Duration::from_secs(5);

/// Whether the buffer could be mapped, once that is known.
type Told = Arc<(Mutex<Option<bool>>, Condvar)>;

/// A buffer that is mapped once the submission it was recorded for is done.
#[derive(Debug)]
pub(super) struct Download {
    buffer: wgpu::Buffer,
    told: Told,
}

impl Download {
    /// `buffer` is filled by `encoder`, which the caller submits.
    pub(super) fn record(encoder: &wgpu::CommandEncoder, buffer: wgpu::Buffer) -> Self {
        let told = Told::default();
        let tell = told.clone();
        encoder.map_buffer_on_submit(&buffer, wgpu::MapMode::Read, .., move |result| {
            *tell.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(result.is_ok());
            tell.1.notify_all();
        });
        Self { buffer, told }
    }

    /// Reads the first `bytes`, after the device has been waited for.
    pub(super) fn read<T>(&self, call: &'static str, bytes: u64, work: impl FnOnce(&[u8]) -> T) -> Result<T, Error> {
        let (state, change) = &*self.told;
        let state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let (state, _) = change
            .wait_timeout_while(state, PATIENCE, |mapped| mapped.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        match *state {
            Some(true) => {}
            Some(false) => {
                return Err(Error::Device { reason: "a buffer could not be mapped: the device is lost".into() });
            }
            None => {
                let wanted = "what was recorded before it submitted, in the order of the calls";
                return Err(Error::Order { call, wanted, found: "an encoder that has not been submitted" });
            }
        }
        let lost = |error: wgpu::MapRangeError| Error::Device { reason: error.to_string() };
        let range = self.buffer.get_mapped_range(..bytes).map_err(lost)?;
        Ok(work(&range))
    }

    /// Gives the buffer back, which has been read.
    pub(super) fn end(self, pool: &Pool) {
        self.buffer.unmap();
        pool.give(self.buffer);
    }
}
