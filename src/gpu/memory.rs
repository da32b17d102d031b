//! What a group's buffers take, read off the buffers themselves.

use super::{
    Group,
    sort::{SortScratch, SortSpace},
    space::{FlushSpace, Space},
    tables::Tables,
};
use crate::MemoryReport;

impl Group {
    /// Every byte allocated for the group, by purpose. Scratch is what batches and flushes have needed so far.
    #[must_use]
    pub fn memory(&self) -> MemoryReport {
        let mut report = MemoryReport::of(&self.config, &self.tables.layout);
        // Both count the same: whatever the plan may have missed is still a byte that was allocated.
        let kept = tables(&self.tables) + self.nothing.size();
        report.padding = (report.padding + kept).saturating_sub(report.kept());
        report.scratch = self.train.as_ref().map_or(0, space)
            + self.frozen.as_ref().map_or(0, space)
            + self.flush.as_ref().map_or(0, flush)
            + self.reports.bytes();
        report
    }
}

fn sum<'b>(buffers: impl IntoIterator<Item = &'b wgpu::Buffer>) -> u64 {
    buffers.into_iter().map(wgpu::Buffer::size).sum()
}

// Taken apart without `..`: a buffer added there must be added here.

fn tables(tables: &Tables) -> u64 {
    let Tables { layout: _, tables, features, ways, cache, records, freqs, packs, unpacks } = tables;
    let freqs = freqs.iter().flat_map(|freqs| [&freqs.shard, &freqs.counters]);
    sum([tables, features, ways, cache]) + sum(records) + sum(freqs) + sum(packs) + sum(unpacks)
}

fn space(space: &Space) -> u64 {
    let Space {
        capacity: _,
        step,
        keys,
        access,
        sorted: ordered,
        sort,
        segment,
        starts,
        miss_keys,
        miss_index,
        moves,
        unique,
        places,
        scratch,
        accesses,
        targets,
        partials: _,
    } = space;
    let plain =
        [step, keys, access, segment, starts, miss_keys, miss_index, moves, unique, places, scratch, accesses, targets];
    sum(plain) + sorted(ordered) + sort_scratch(sort)
}

fn flush(space: &FlushSpace) -> u64 {
    let FlushSpace { step, moves, no_scratch } = space;
    sum([step, moves, no_scratch])
}

fn sorted(space: &SortSpace) -> u64 {
    let SortSpace { arrays } = space;
    sum(arrays.iter().flatten())
}

fn sort_scratch(scratch: &SortScratch) -> u64 {
    let SortScratch { digits, totals } = scratch;
    sum([digits, totals])
}
