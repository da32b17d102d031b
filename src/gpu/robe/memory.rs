//! What a group's buffers take, read off the buffers themselves.

use super::{Array, Chunks, Group, Space};
use crate::{
    gpu::sort::{SortScratch, SortSpace},
    memory::Allocation,
};

impl Group {
    /// Every buffer of the group by its name, with its bytes: what it keeps, then the scratch that batches have needed so far. The rows
    /// take none.
    #[must_use]
    pub fn allocations(&self) -> Vec<Allocation> {
        // Taken apart without `..`: a buffer added there must be added here.
        let Array { tables, features, memory, states } = &self.array;
        let kept = [("weights", memory), ("states", states), ("tables", tables), ("features", features)];
        let kept = kept.into_iter().chain([("nothing", &self.nothing)]).map(|(what, buffer)| (what, buffer.size()));
        let spaces = [&self.train, &self.frozen].into_iter().flatten().flat_map(space);
        kept.chain(self.reports.allocations()).chain(spaces).chain(self.chunks.iter().flat_map(chunks)).collect()
    }
}

fn space(space: &Space) -> [Allocation; 4] {
    let Space { capacity: _, step, keys, access, hashes } = space;
    [("step", step), ("keys", keys), ("access", access), ("hashes", hashes)].map(|(what, buffer)| (what, buffer.size()))
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
        ("scan", digits),
        ("scan", totals),
    ];
    let sorted = arrays.iter().flatten().map(|buffer| ("sorted", buffer));
    single.into_iter().chain(sorted).map(|(what, buffer)| (what, buffer.size())).collect()
}
