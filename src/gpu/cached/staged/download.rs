//! Buffers that come back to the host once the caller's submission is done.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
    time::Duration,
};

use crate::{
    error::Error,
    gpu::{cached::staged::pool::Pool, engine::wait::CALLS_WAIT},
    host::locked,
};

/// Longest wait for a callback. After the device has been waited for, another thread may be about to run the callback. For an encoder that
/// was not submitted no callback comes, and the read fails after this time.
const PATIENCE: Duration = Duration::from_secs(5);

/// The end of the encoder that fills a download.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The device has executed the encoder.
    Executed,
    /// The device is lost.
    Lost,
    /// The encoder was dropped without being submitted.
    Dropped,
}

/// The outcome of an encoder, once it is known, and the signal that it is: for the threads that wait, and for a future.
type Signal = Arc<(Mutex<Known>, Condvar)>;

#[derive(Debug, Default)]
struct Known {
    outcome: Option<Outcome>,
    waker: Option<Waker>,
}

/// Sets the outcome. If it is dropped before, as wgpu does with an encoder that is never submitted, the outcome is `Dropped`.
struct Sender(Signal);

impl Sender {
    fn send(&self, outcome: Outcome) {
        let mut known = locked(&self.0.0);
        known.outcome.get_or_insert(outcome);
        let waker = known.waker.take();
        drop(known);
        self.0.1.notify_all();
        waker.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.send(Outcome::Dropped);
    }
}

/// A buffer that the host can read once the submission that fills it is done.
#[derive(Debug)]
pub(crate) struct Download {
    buffer: wgpu::Buffer,
    signal: Signal,
}

impl Download {
    /// Has `buffer` mapped once the device has executed `encoder`, which fills it. The caller submits `encoder`.
    pub(crate) fn encode(encoder: &wgpu::CommandEncoder, buffer: wgpu::Buffer) -> Self {
        let signal = Signal::default();
        let sender = Sender(signal.clone());
        encoder.map_buffer_on_submit(&buffer, wgpu::MapMode::Read, .., move |result| {
            sender.send(if result.is_ok() { Outcome::Executed } else { Outcome::Lost });
        });
        Self { buffer, signal }
    }

    /// Whether it is known if the encoder was executed, was dropped, or was lost with its device.
    pub(crate) fn known(&self) -> bool {
        self.lock().outcome.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        locked(&self.signal.0)
    }

    /// Has `waker` woken when the encoder's outcome is known.
    pub(crate) fn wake(&self, waker: &Waker) {
        let mut known = self.lock();
        if known.outcome.is_none() {
            known.waker = Some(waker.clone());
        }
    }

    /// Waits in a browser until the encoder's outcome is known. Elsewhere [`read`](Self::read) waits for the moment between the device's answer and
    /// the callback of another thread.
    pub(crate) async fn arrived(&self) {
        std::future::poll_fn(|cx| {
            if CALLS_WAIT || self.known() {
                return Poll::Ready(());
            }
            self.wake(cx.waker());
            Poll::Pending
        })
        .await;
    }

    /// Whether the encoder was dropped without being submitted.
    pub(crate) fn dropped(&self) -> bool {
        self.lock().outcome == Some(Outcome::Dropped)
    }

    /// Reads the first `bytes` bytes, after the device has been waited for. Fails if the encoder was dropped or not submitted.
    pub(crate) fn read<T>(&self, call: &'static str, bytes: u64, work: impl FnOnce(&[u8]) -> T) -> Result<T, Error> {
        let mut known = self.lock();
        if CALLS_WAIT {
            let waited = self.signal.1.wait_timeout_while(known, PATIENCE, |known| known.outcome.is_none());
            known = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let order = |found| {
            let wanted = "the encoder of the earlier call submitted first";
            Err(Error::Order { call, wanted, found })
        };
        match known.outcome {
            Some(Outcome::Executed) => {}
            Some(Outcome::Lost) => {
                return Err(Error::Device { reason: "device lost (a buffer could not be mapped)".into() });
            }
            Some(Outcome::Dropped) => return order("an encoder that was dropped"),
            None => return order("an encoder that has not been submitted"),
        }
        drop(known);
        let lost = |error: wgpu::MapRangeError| Error::Device { reason: format!("device lost ({error})") };
        let range = self.buffer.get_mapped_range(..bytes).map_err(lost)?;
        Ok(work(&range))
    }

    /// Releases a buffer that no encoder will fill.
    pub(crate) fn give_up(self, pool: &Pool) {
        pool.forget(&self.buffer);
    }

    /// Gives the buffer back to `pool` after it was read.
    pub(crate) fn end(self, pool: &Pool) {
        self.buffer.unmap();
        pool.give(self.buffer);
    }
}
