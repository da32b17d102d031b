//! A real run over ranks, as threads of this process: the bytes that it sends.

use super::cache::Cache;
use super::deal::Batches;
use super::verify::Sent;
use super::wire::{Phase, Wire};
use crate::progress::Progress;
use hotrow::dist::{self, Threads};
use hotrow::{CpuGroup, GroupConfig, Lookup as _, Optimizer, OptimizerKind, Policy, WAYS};

/// Runs every step of a trace forward and backward, with gradients of zero, and counts what each rank sends to each other.
pub(super) fn run(
    batches: &Batches,
    cache: &Cache,
    hottest: &[u32],
    rows: u32,
    optimizer: OptimizerKind,
    wire: Wire,
) -> Result<Sent, hotrow::Error> {
    let config = GroupConfig::new(&[rows], wire.dim)
        .with_features(vec![0; wire.features as usize])
        .with_precision(wire.precision)
        .with_pooling(wire.pooling)
        .with_policy(cache.policy)
        .with_optimizer(Optimizer::sgd(0.01).with_kind(optimizer))
        .with_cache_rows(cache.rows);
    let progress = Progress::new("plan dist --verify", batches.steps() as u64);
    let traffic = Threads::run(wire.ranks, |comm: &mut Threads| {
        let mut group = dist::Group::new(comm, config.clone(), wire.shards, CpuGroup::new)?.with_wire(wire.form)?;
        if cache.policy == Policy::Static {
            for (number, shard) in group.shards() {
                let own = hottest.iter().take(cache.slots() as usize).filter(|&&row| row % wire.shards == number);
                let own: Vec<u32> = own.map(|row| row / wire.shards).collect();
                shard.map_or(Ok(()), |shard| shard.pin(&own, WAYS).map(drop))?;
            }
        }
        for step in 0..batches.steps() {
            let (mut indices, mut offsets) = (Vec::new(), vec![0]);
            for bag in batches.part(step, group.rank(), wire.ranks) {
                indices.extend_from_slice(bag);
                offsets.push(indices.len() as u32);
            }
            let weights = wire.weighted.then(|| vec![1.0; indices.len()]);
            let outputs = group.forward(&indices, &offsets, weights.as_deref())?;
            group.backward(&vec![0.0; outputs.len()])?;
            if group.rank() == 0 {
                progress.advance(1);
            }
        }
        Ok(group.traffic().clone())
    })?;
    let mut sent = Sent::new(batches.steps() as u64, wire.ranks as usize);
    for (from, traffic) in traffic.iter().enumerate() {
        for to in 0..wire.ranks {
            for (phase, of_run) in Phase::ALL.into_iter().zip(dist::Phase::ALL) {
                sent.add(phase, from, to as usize, traffic.bytes_to(of_run, to));
            }
        }
    }
    Ok(sent)
}
