//! The memory of a parameter-shared group, read off its buffers.

use crate::{
    gpu::{
        robe::RobeGroup,
        stages::{
            robe::{
                array::Array,
                space::{Chunks, Runs, Scattered, Space},
            },
            sort::space::{SortScratch, SortSpace},
        },
    },
    memory::{Allocated, Allocation, MemoryReport},
};

impl RobeGroup {
    /// The bytes that the group has allocated, by purpose. Scratch is as large as the batches so far have made it. Rows take no memory.
    #[must_use]
    pub fn memory(&self) -> MemoryReport {
        // Destructured without `..`, so that a new buffer must be added here.
        let Array { tables, features, memory, states, storage: _, robe: _, window: _ } = &self.kind.array;
        let windows =
            memory.iter().map(|buffer| ("weights", buffer)).chain(states.iter().map(|buffer| ("states", buffer)));
        let kept = windows.chain([("tables", tables), ("features", features), ("dummy", &self.dummy)]);
        let kept = kept.map(|(what, buffer)| (what, buffer.size()));
        let spaces = [&self.kind.train, &self.kind.frozen].into_iter().flatten().flat_map(space);
        let backward = self.kind.chunks.iter().flat_map(chunks).chain(self.kind.runs.iter().flat_map(runs));
        let buffers = Allocated {
            kept: kept.collect(),
            staging: self.reports.allocations(),
            scratch: spaces
                .chain(backward)
                .chain(self.kind.scattered.iter().flat_map(scattered))
                .chain(self.sums.buffer().map(|buffer| ("outputs", buffer.size())))
                .collect(),
        };
        MemoryReport::of_robe(&self.kind.config, buffers)
    }
}

fn space(space: &Space) -> [Allocation; 4] {
    let Space { capacity: _, step, keys, access, hashes } = space;
    [("step", step), ("keys", keys), ("access", access), ("hashes", hashes)].map(|(what, buffer)| (what, buffer.size()))
}

fn scattered(scattered: &Scattered) -> [Allocation; 2] {
    let Scattered { sums, covered } = scattered;
    [("sums", sums), ("covered", covered)].map(|(what, buffer)| (what, buffer.size()))
}

fn runs(runs: &Runs) -> [Allocation; 3] {
    let Runs { capacity: _, runs, blocks, total } = runs;
    [("runs", runs), ("blocks", blocks), ("total", total)].map(|(what, buffer)| (what, buffer.size()))
}

fn chunks(chunks: &Chunks) -> Vec<Allocation> {
    let Chunks { capacity: _, keys, access, sorted, sort, segment, starts, accesses, targets, scratch } = chunks;
    let (SortSpace { arrays }, SortScratch { digits, totals }) = (sorted, sort);
    let single = [
        ("chunk_keys", keys),
        ("chunk_access", access),
        ("segment", segment),
        ("starts", starts),
        ("accesses", accesses),
        ("targets", targets),
        ("scratch", scratch),
        ("scan", &digits[0]),
        ("scan", &digits[1]),
        ("scan", totals),
    ];
    let sorted = arrays.iter().flatten().map(|buffer| ("sorted", buffer));
    single.into_iter().chain(sorted).map(|(what, buffer)| (what, buffer.size())).collect()
}
