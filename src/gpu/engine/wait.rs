//! Waits for a device with a generous limit.

use crate::error::Error;

/// Longest time that a call waits for the device.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(600);

/// Waits for a submission, or for all of them.
pub(crate) fn wait(device: &wgpu::Device, submission_index: Option<wgpu::SubmissionIndex>) -> Result<(), Error> {
    let wait = wgpu::PollType::Wait { submission_index, timeout: Some(PATIENCE) };
    device.poll(wait).map(drop).map_err(|error| Error::Device { reason: error.to_string() })
}
