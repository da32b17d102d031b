//! `simulate --backend gpu`: the same trace played through the real kernels.

use crate::progress::Progress;
use hotrow::Policy;
use hotrow::simulate::{Counters, Geometry};
use hotrow::trace::Trace;

/// Plays `trace` in batches of `batch` accesses through the device's cache of `shape` (32 ways).
pub(crate) fn gpu(
    trace: &Trace,
    policy: Policy,
    shape: Geometry,
    batch: usize,
    progress: &Progress,
) -> anyhow::Result<Counters> {
    // Filled in together with the device group.
    let _ = (trace, policy, shape, batch, progress);
    anyhow::bail!("--backend gpu: wanted the device's kernels, found none in this build; use --backend cpu")
}
