//! Waiting for a device, for as long as a device may take.

use crate::error::Error;

/// How long a call that waits gives the device.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(600);

/// Waits for a submission, or for all of them.
pub(crate) fn wait(device: &wgpu::Device, submission_index: Option<wgpu::SubmissionIndex>) -> Result<(), Error> {
    let wait = wgpu::PollType::Wait { submission_index, timeout: Some(PATIENCE) };
    device.poll(wait).map(drop).map_err(|error| Error::Device { reason: error.to_string() })
}
