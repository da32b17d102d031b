//! `simulate --backend gpu`: plays a trace through the real kernels with a table of one FP32 value a row.

use anyhow::ensure;
use hotrow::{Batch, Context, Counters, Group, GroupConfig, Mode, Policy, Pooling, Precision, prelude::*};
use hotrow_plan::simulate::Geometry;
use hotrow_report::clock::{Clock, Rounds};
use hotrow_report::progress::Progress;
use hotrow_report::trace::Trace;

/// Number of steps submitted at a time, so that the device neither waits for the host nor falls far behind.
const STEPS: usize = 32;

/// The most rows of a simulated table, which take 2 GiB with their frequencies.
const MOST_ROWS: u32 = 1 << 28;

/// Plays `trace`, of a table of `rows` rows, in batches of `batch` accesses through the device's cache of `shape` (32 ways). Static holds the `hottest`.
pub(crate) fn gpu(
    context: &Context,
    trace: &Trace,
    rows: u32,
    (policy, window_ways): (Policy, u32),
    (shape, hottest): (Geometry, &[u32]),
    batch: usize,
    progress: &Progress,
) -> anyhow::Result<Counters> {
    ensure!(
        rows <= MOST_ROWS,
        "--backend gpu: wanted a table of at most {MOST_ROWS} rows, found {rows}; use --backend cpu"
    );
    let mut config = GroupConfig::new(&[rows], 1);
    config.precision = Precision::Fp32;
    (config.policy, config.window_ways) = (policy, window_ways);
    config.forward_only = true;
    config.pooling = Pooling::None;
    config.cache_rows = shape.slots;
    let mut group = Group::new(context, config)?;
    if policy == Policy::Static {
        group.pin(hottest, shape.ways)?;
    }
    let clock = Clock::new(context, Rounds::ONE);
    let longest = batch.min(trace.ids.len()) as u32;
    let offsets = clock.storage(&(0..=longest).collect::<Vec<_>>());
    let outputs = clock.storage(&vec![0; longest as usize]);
    for stretch in trace.ids.chunks(batch.saturating_mul(STEPS)) {
        let mut encoder = clock.encoder();
        for ids in stretch.chunks(batch) {
            let indices = clock.storage(ids);
            let one = Batch {
                indices: Some(indices.slice(..)),
                offsets: offsets.slice(..4 * (ids.len() as u64 + 1)),
                weights: None,
            };
            group.encode_forward(&mut encoder, &one, outputs.slice(..), Mode::Train)?;
        }
        clock.submit(encoder)?;
        progress.advance(stretch.len() as u64);
    }
    group.check()?;
    Ok(group.counters()?.into_iter().sum())
}
