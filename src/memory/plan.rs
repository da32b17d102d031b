//! What a group will allocate, before anything is: the same lists of buffers that the allocation itself goes through.

use super::{Allocated, Allocation, MemoryReport, buffer_bytes};
use crate::{
    Error, GroupConfig, Layout, Placement, Policy,
    gpu::{FlushSpace, REPORT_BYTES, Space, Staged},
    layout::{Shard, table_words},
};

/// What a group will be asked for, as far as memory goes. `Calls::from(indices)`: steps of up to so many indices, frozen steps of
/// as many, a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calls {
    /// Indices of the largest forward, with or without its backward; `None`: none ever comes.
    pub train: Option<u32>,
    /// Whether batches are prefetched while the last one waits for its backward: each then has a space of its own.
    pub prefetch: bool,
    /// Indices of the largest frozen forward, or rows that are read or written at once.
    pub frozen: Option<u32>,
    /// Whether the cache is ever flushed, or rows are pinned.
    pub flush: bool,
    /// Most recorded forwards whose outcome the device has not told yet; one is reckoned with in any case.
    pub in_flight: u32,
}

impl Default for Calls {
    /// None.
    fn default() -> Self {
        Self { train: None, prefetch: false, frozen: None, flush: false, in_flight: 0 }
    }
}

impl From<u32> for Calls {
    fn from(indices: u32) -> Self {
        Self { train: Some(indices), prefetch: false, frozen: Some(indices), flush: true, in_flight: 1 }
    }
}

impl MemoryReport {
    /// What a group of this configuration takes once all `calls` have come; no device is asked. Right to the byte: it goes through
    /// the lists by which [`Group`](crate::Group) allocates. Only the ring of a staged table is as long as the rows that are missing make
    /// it: of that it gives the most.
    #[must_use]
    pub fn plan(config: &GroupConfig, layout: &Layout, calls: impl Into<Calls>) -> Self {
        let calls = calls.into();
        let mut scratch = Vec::new();
        let mut note = |what, bytes| {
            scratch.push((what, buffer_bytes(bytes)));
            Ok::<_, Error>(())
        };
        let ahead = calls.train.filter(|_| calls.prefetch);
        for (indices, train) in [(calls.train, true), (ahead, true), (calls.frozen, false)] {
            // Writing a line cannot fail.
            let _space = indices.map(|indices| Space::of(&mut note, layout, indices, train));
        }
        if calls.flush && layout.sets > 0 {
            let _space = FlushSpace::of(&mut note, layout);
        }
        let mut staging = vec![("report", REPORT_BYTES); calls.in_flight.max(1) as usize];
        if config.placement == Placement::Staged {
            staging.extend(Staged::plan(config, layout, &calls));
        }
        Self::new(config, layout, Allocated { kept: kept(config, layout), staging, scratch })
    }
}

/// Bytes of the uniform that names a shard.
const SHARD_UNIFORM: u64 = size_of::<Shard>() as u64;

fn table_bytes(config: &GroupConfig) -> [u64; 2] {
    [4 * table_words(config).len() as u64, 4 * u64::from(config.feature_count())]
}

/// Uniforms of the shards: two for each of the records', one for each buffer of frequencies.
fn uniforms(config: &GroupConfig, layout: &Layout) -> usize {
    let shards = if config.placement == Placement::Staged { 0 } else { layout.shards };
    2 * shards as usize + layout.freq_shards(config.policy).count()
}

/// Step number, bases, counters, features, shard uniforms, before buffers are rounded up.
pub(super) fn counters(config: &GroupConfig, layout: &Layout) -> u64 {
    table_bytes(config).iter().sum::<u64>() + SHARD_UNIFORM * uniforms(config, layout) as u64
}

/// The buffers of `gpu::tables::Tables`, and the one that stands where a batch has no weights.
fn kept(config: &GroupConfig, layout: &Layout) -> Vec<Allocation> {
    let slots = u64::from(layout.slots());
    let [tables, features] = table_bytes(config);
    let mut all = vec![
        ("tables", tables),
        ("features", features),
        ("ways", (slots * 16).max(16 * u64::from(layout.ways))),
        ("nothing", 16),
    ];
    all.extend(layout.windows_bytes().map(|bytes| ("cache", bytes)));
    if config.placement != Placement::Staged {
        all.extend((0..layout.shards).map(|shard| ("records", u64::from(layout.shard_rows(shard)) * layout.stride())));
    }
    let freqs = layout.freq_shards(config.policy);
    all.extend(freqs.map(|shard| ("freqs", if config.policy == Policy::Lfu { u64::from(shard.rows) * 4 } else { 0 })));
    all.extend(vec![("uniform", SHARD_UNIFORM); uniforms(config, layout)]);
    let mut all: Vec<_> = all.iter().map(|&(what, bytes)| (what, buffer_bytes(bytes))).collect();
    if config.placement == Placement::Staged {
        all.push(("store", layout.table_bytes())); // the host's own memory, or a file
    }
    all
}
