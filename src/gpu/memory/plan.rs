//! Plans the allocations of a cached group with the lists of buffers that the group itself allocates from.

use crate::{
    config::{GroupConfig, Placement, Policy},
    error::Error,
    gpu::{
        cached::staged::Staged,
        engine::readback::REPORT_BYTES,
        stages::cached::space::{FlushSpace, Space},
    },
    memory::{
        Allocated, Allocation, Calls, FREQ_BYTES, MemoryReport, SHARD_UNIFORM, buffer_bytes, table_bytes, uniforms,
    },
    table::layout::Layout,
};

impl MemoryReport {
    /// The bytes of a group of this configuration once all `calls` have been made. No device is needed. The plan is exact to the byte,
    /// because it uses the lists from which [`Group`](crate::Group) allocates. Only the ring of a staged table depends on the missing rows;
    /// the plan has its largest size. A frequency takes 4 bytes, as on a GPU; [`CpuGroup::memory`](crate::CpuGroup::memory) has the 1, 2 or 4
    /// bytes of the configuration's counters.
    #[must_use]
    pub fn plan(config: &GroupConfig, layout: &Layout, calls: impl Into<Calls>) -> Self {
        Self::plan_of(config, layout, calls.into(), FREQ_BYTES)
    }

    /// As [`plan`](Self::plan), with frequencies of `freq_bytes`.
    pub(crate) fn plan_of(config: &GroupConfig, layout: &Layout, calls: Calls, freq_bytes: u64) -> Self {
        let mut scratch = Vec::new();
        let mut note = |what, bytes| {
            scratch.push((what, buffer_bytes(bytes)));
            Ok::<_, Error>(())
        };
        let ahead = calls.train.filter(|_| calls.prefetch);
        for (indices, train) in [(calls.train, true), (ahead, true), (calls.frozen, false)] {
            // Adding a line cannot fail.
            let _space = indices.map(|indices| Space::of(&mut note, layout, indices, train));
        }
        if calls.flush && layout.sets > 0 {
            let _space = FlushSpace::of(&mut note, layout);
        }
        scratch.extend(calls.half_outputs.map(|outputs| ("outputs", buffer_bytes(u64::from(outputs) * 4))));
        let mut staging = vec![("report", REPORT_BYTES); calls.in_flight.max(1) as usize];
        if config.placement == Placement::Staged {
            staging.extend(Staged::plan(config, layout, &calls));
        }
        Self::new(config, layout, Allocated { kept: kept(config, layout, freq_bytes), staging, scratch }, freq_bytes)
    }
}

/// The buffers of [`Tables`](crate::gpu::stages::cached::tables::Tables), and the dummy buffer.
fn kept(config: &GroupConfig, layout: &Layout, freq_bytes: u64) -> Vec<Allocation> {
    let slots = u64::from(layout.slots());
    let [tables, features] = table_bytes(config);
    let mut all = vec![
        ("tables", tables),
        ("features", features),
        ("ways", (slots * 16).max(16 * u64::from(layout.ways))),
        ("dummy", 16),
    ];
    all.extend(layout.windows_bytes().map(|bytes| ("cache", bytes)));
    if config.placement != Placement::Staged {
        all.extend((0..layout.shards).map(|shard| ("records", u64::from(layout.shard_rows(shard)) * layout.stride())));
    }
    let freqs = layout.freq_shards(config.policy);
    all.extend(
        freqs.map(|shard| ("freqs", if config.policy == Policy::Lfu { u64::from(shard.rows) * freq_bytes } else { 0 })),
    );
    let mut all: Vec<_> = all.iter().map(|&(what, bytes)| (what, buffer_bytes(bytes))).collect();
    all.extend(vec![("uniform", SHARD_UNIFORM); uniforms(config, layout)]);
    if config.placement == Placement::Staged {
        all.push(("store", layout.table_bytes())); // the host's own memory, or a file
    }
    all
}
