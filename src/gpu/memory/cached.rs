//! The memory of a cached group, read off its buffers.

use crate::{
    gpu::{
        cached::group::Group,
        stages::{
            cached::{
                space::{FlushSpace, Space},
                tables::{Freqs, Tables},
            },
            sort::space::{SortScratch, SortSpace},
        },
    },
    memory::{Allocated, Allocation, FREQ_BYTES, MemoryReport},
};

impl Group {
    /// The bytes that the group has allocated, by purpose. Scratch is as large as the batches and flushes so far have made it.
    #[must_use]
    pub fn memory(&self) -> MemoryReport {
        let spaces = self.kind.train.iter().chain([&self.kind.frozen]).flatten().flat_map(space);
        let staged = self.kind.staged.iter().flat_map(|staged| staged.allocations());
        let store = self.kind.staged.iter().map(|_| ("store", self.kind.tables.layout.table_bytes()));
        let buffers = Allocated {
            kept: tables(&self.kind.tables).chain([("dummy", self.dummy.size())]).chain(store).collect(),
            staging: self.reports.allocations().into_iter().chain(staged).collect(),
            scratch: spaces
                .chain(self.kind.flush.iter().flat_map(flush))
                .chain(sizes("outputs", self.sums.buffer()))
                .collect(),
        };
        MemoryReport::new(&self.kind.config, &self.kind.tables.layout, buffers, FREQ_BYTES)
    }
}

fn sizes<'b>(
    what: &'static str,
    buffers: impl IntoIterator<Item = &'b wgpu::Buffer>,
) -> impl Iterator<Item = Allocation> {
    buffers.into_iter().map(move |buffer| (what, buffer.size()))
}

// Destructured without `..`, so that a new buffer must be added here.

fn tables(tables: &Tables) -> impl Iterator<Item = Allocation> {
    let Tables { layout: _, tables, features, ways, cache, records, freqs } = tables;
    let single = [("tables", tables), ("features", features), ("ways", ways)];
    let (freqs, uniforms): (Vec<_>, Vec<_>) =
        freqs.iter().map(|Freqs { rows: _, shard, counters }| (counters, shard)).unzip();
    single
        .map(|(what, buffer)| (what, buffer.size()))
        .into_iter()
        .chain(sizes("cache", cache.buffers()))
        .chain(sizes("records", records))
        .chain(sizes("freqs", freqs))
        .chain(sizes("uniform", uniforms))
}

fn space(space: &Space) -> impl Iterator<Item = Allocation> {
    let Space {
        capacity: _,
        step,
        keys,
        access,
        sorted: SortSpace { arrays },
        sort: SortScratch { digits, totals },
        segment,
        starts,
        miss_keys,
        miss_index,
        moves,
        unique,
        places,
        accesses,
        targets,
        scratch,
        partials: _,
    } = space;
    let single = [
        ("step", step),
        ("keys", keys),
        ("access", access),
        ("segment", segment),
        ("starts", starts),
        ("miss_keys", miss_keys),
        ("miss_index", miss_index),
        ("moves", moves),
        ("unique", unique),
        ("places", places),
        ("accesses", accesses),
        ("targets", targets),
        ("scratch", scratch),
    ];
    let single = single.map(|(what, buffer)| (what, buffer.size()));
    single
        .into_iter()
        .chain(sizes("sorted", arrays.iter().flatten()))
        .chain(sizes("scan", digits.iter().chain([totals])))
}

fn flush(space: &FlushSpace) -> [Allocation; 3] {
    let FlushSpace { step, moves, no_scratch } = space;
    [("step", step), ("moves", moves), ("scratch", no_scratch)].map(|(what, buffer)| (what, buffer.size()))
}
