//! `simulate --backend gpu`: plays a trace through the real kernels with a table of one FP32 value a row.

use crate::lab::{Lab, Rounds};
use crate::progress::Progress;
use crate::trace::Trace;
use anyhow::ensure;
use hotrow::{Batch, Context, Counters, Group, GroupConfig, Policy, Pooling, Precision, prelude::*};
use hotrow_plan::simulate::{Geometry, SimulatedCounters};

/// Number of steps submitted at a time, so that the device neither waits for the host nor falls far behind.
const STEPS: usize = 32;

/// The most rows of a simulated table, which take 2 GiB with their frequencies.
const MOST_ROWS: u64 = 1 << 28;

/// Plays `trace` in batches of `batch` accesses through the device's cache of `shape` (32 ways).
pub(crate) fn gpu(
    context: &Context,
    trace: &Trace,
    policy: Policy,
    shape: Geometry,
    batch: usize,
    progress: &Progress,
) -> anyhow::Result<SimulatedCounters> {
    let rows = trace.ids.iter().max().map_or(1, |&id| u64::from(id) + 1);
    ensure!(
        rows <= MOST_ROWS,
        "--backend gpu: wanted ids below {MOST_ROWS}, found {}, and the real table has a row for each; renumber them, or use \
         --backend cpu",
        rows - 1
    );
    let mut config = GroupConfig::new(&[rows as u32], 1);
    config.precision = Precision::Fp32;
    config.policy = policy;
    config.forward_only = true;
    config.pooling = Pooling::None;
    config.cache_rows = u64::from(shape.slots).min(rows) as u32;
    let mut group = Group::new(context, config)?;
    if policy == Policy::Static {
        group.pin(&trace.hottest(shape.slots as usize), shape.ways)?;
    }
    let lab = Lab::new(context, Rounds::ONE);
    let longest = batch.min(trace.ids.len()) as u32;
    let offsets = lab.storage(&(0..=longest).collect::<Vec<_>>());
    let outputs = lab.storage(&vec![0; longest as usize]);
    for stretch in trace.ids.chunks(batch.saturating_mul(STEPS)) {
        let mut encoder = lab.encoder();
        for ids in stretch.chunks(batch) {
            let indices = lab.storage(ids);
            let one = Batch {
                indices: Some(indices.slice(..)),
                offsets: offsets.slice(..4 * (ids.len() as u64 + 1)),
                weights: None,
            };
            group.encode_forward(&mut encoder, &one, outputs.slice(..))?;
        }
        lab.submit(encoder)?;
        progress.advance(stretch.len() as u64);
    }
    group.check()?;
    let seen: Counters = group.counters()?.into_iter().sum();
    let Counters { accesses, hits, unique, unique_misses, admitted, conflicts, evictions, .. } = seen;
    Ok(SimulatedCounters { accesses, hits, unique, unique_misses, admitted, conflicts, evictions })
}
