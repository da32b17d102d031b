//! Waits for a device: in a call, or in a future that any executor may poll. In a browser no call can wait, because the answer comes only
//! once the call has returned; futures are woken there by the browser.

use std::{
    pin::pin,
    task::{Context, Poll},
};

use crate::{error::Error, gpu::engine::lost::failed};

/// Whether a call may wait for the device.
pub(crate) const CALLS_WAIT: bool = cfg!(not(target_family = "wasm"));

/// Longest time that a call waits for the device.
#[cfg(not(target_family = "wasm"))]
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(600);

/// Waits for a submission, or for all of them.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn wait(device: &wgpu::Device, submission_index: Option<wgpu::SubmissionIndex>) -> Result<(), Error> {
    let wait = wgpu::PollType::Wait { submission_index, timeout: Some(PATIENCE) };
    device.poll(wait).map(drop).map_err(|error| failed(device, &error))
}

/// Runs `future`, which waits for answers of the device, to its end.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn block_on<T>(device: &wgpu::Device, future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let mut future = pin!(future);
    let cx = &mut Context::from_waker(std::task::Waker::noop());
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(cx) {
            return done;
        }
        wait(device, None)?;
    }
}

/// Awaits `future`, which an answer of the device wakes. Outside a browser each poll looks for answers and wakes itself.
pub(crate) async fn driven<T>(device: &wgpu::Device, future: impl Future<Output = T>) -> Result<T, Error> {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| {
        if CALLS_WAIT && let Err(error) = device.poll(wgpu::PollType::Poll) {
            return Poll::Ready(Err(failed(device, &error)));
        }
        let polled = future.as_mut().poll(cx);
        if CALLS_WAIT && polled.is_pending() {
            cx.waker().wake_by_ref();
        }
        polled.map(Ok)
    })
    .await
}
