//! What a group's buffers take, read off the buffers themselves.

use super::{
    Group,
    sort::{SortScratch, SortSpace},
    space::{FlushSpace, Ranges, Space},
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
    let Tables { layout: _, tables, features, ways, cache, records, freqs, shards } = tables;
    sum([tables, features, ways, cache]) + sum(records) + sum(freqs) + sum(shards)
}

fn space(space: &Space) -> u64 {
    let Space {
        capacity: _,
        step,
        keys,
        access,
        by_row,
        by_set,
        by_victim,
        sort,
        segment,
        starts,
        unique,
        rows,
        row_ranges,
        touch_ranges,
        set_keys,
        set_segment,
        set_starts,
        victim_rows,
        victim_slots,
        victim_ranges,
        fetch_to,
        sources,
        places,
        scratch,
        grads,
        partials,
    } = space;
    let plain = [
        step,
        keys,
        access,
        segment,
        starts,
        unique,
        rows,
        set_keys,
        set_segment,
        set_starts,
        victim_rows,
        victim_slots,
        fetch_to,
        sources,
        places,
        scratch,
        grads,
        partials,
    ];
    sum(plain)
        + [by_row, by_set, by_victim].into_iter().map(sorted).sum::<u64>()
        + [row_ranges, touch_ranges, victim_ranges].into_iter().map(ranges).sum::<u64>()
        + sort_scratch(sort)
}

fn flush(space: &FlushSpace) -> u64 {
    let FlushSpace { step, rows, sources, by_row, sort, ranges: cut, no_scratch } = space;
    sum([step, rows, sources, no_scratch]) + sorted(by_row) + sort_scratch(sort) + ranges(cut)
}

fn sorted(space: &SortSpace) -> u64 {
    let SortSpace { arrays } = space;
    sum(arrays.iter().flatten())
}

fn sort_scratch(scratch: &SortScratch) -> u64 {
    let SortScratch { digits, totals } = scratch;
    sum([digits, totals])
}

fn ranges(ranges: &Ranges) -> u64 {
    let Ranges { range, groups } = ranges;
    range.size() + groups.size()
}
