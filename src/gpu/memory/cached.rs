//! The memory of a cached group.

use crate::{
    config::{GroupConfig, Placement},
    error::Error,
    gpu::{
        cached::{group::Group, staged::Staged},
        engine::{readback::REPORT_BYTES, scratch::Make},
        memory::sizes,
        stages::cached::{
            space::{FlushSpace, Space},
            tables::{Freqs, Tables},
        },
    },
    memory::{Allocated, Allocation, Calls, MemoryReport, PIECE_UNIFORM, buffer_bytes, table_bytes},
    table::{abi::Share, layout::Layout},
};

impl Group {
    /// The bytes that the group has allocated, by purpose. Scratch is as large as the batches and flushes so far have made it.
    pub(crate) fn allocated(&self) -> MemoryReport {
        // Destructured without `..`, so that a new buffer must be added here.
        let Tables { layout, tables, features, shares, ways, cache, records, freqs } = &self.kind.tables;
        let freqs = freqs.iter().flat_map(|Freqs { rows: _, piece, counters }| [counters, piece]);
        let kept = [tables, features, shares, ways, &self.dummy].into_iter().chain(cache.buffers()).chain(records);
        let spaces = self.kind.train.iter().chain([&self.kind.frozen]).flatten().map(|space| &space.made);
        let flush = self.kind.flush.iter().flat_map(|FlushSpace { step, swaps, no_scratch }| {
            sizes(flush(layout), [step, swaps, no_scratch].into_iter())
        });
        let staged = self.kind.storage.allocations();
        let buffers = Allocated {
            kept: sizes(list(&self.kind.config, layout, layout.freq_bits), kept.chain(freqs)),
            staging: self.reports.allocations().into_iter().chain(staged).collect(),
            scratch: spaces
                .flatten()
                .copied()
                .chain(flush)
                .chain(self.sums.buffer().map(|sums| ("outputs", sums.size())))
                .collect(),
        };
        MemoryReport::new(&self.kind.config, layout, buffers, layout.freq_bits)
    }
}

impl MemoryReport {
    /// The bytes of a group of this configuration once all `calls` have been made. No device is needed. The plan is exact to the byte,
    /// because it uses the lists from which [`Group`](crate::Group) allocates. Only the ring of a staged table depends on the missing rows;
    /// the plan has its largest size. A counter of Window has 4 bits, as on a GPU; on the CPU it is a byte.
    ///
    /// # Errors
    /// [`Error::Config`] for an illegal configuration, [`Error::TooLarge`] if a buffer must be larger than `binding` bytes.
    pub fn plan(config: &GroupConfig, binding: u64, calls: impl Into<Calls>) -> Result<Self, Error> {
        Ok(Self::planned(config, &Layout::new(config, binding)?, calls))
    }

    /// As [`plan`](Self::plan), with the sizes of a group.
    #[doc(hidden)]
    #[must_use]
    pub fn planned(config: &GroupConfig, layout: &Layout, calls: impl Into<Calls>) -> Self {
        Self::plan_of(config, layout, calls.into(), layout.freq_bits)
    }

    /// As [`plan`](Self::plan), with counters of `freq_bits`.
    pub(crate) fn plan_of(config: &GroupConfig, layout: &Layout, calls: Calls, freq_bits: u32) -> Self {
        let make = &mut Make::plan();
        let ahead = calls.train.filter(|_| calls.prefetch);
        let spaces = [(calls.train, true), (ahead, true), (calls.frozen, false)].into_iter();
        let spaces = spaces.filter_map(|(indices, train)| Some(Space::of(make, layout, indices?, train).ok()?.made));
        let mut scratch: Vec<_> = spaces.flatten().collect();
        if calls.flush && layout.sets > 0 {
            scratch.extend(flush(layout));
        }
        scratch.extend(calls.outputs());
        let mut staging = vec![("report", REPORT_BYTES); calls.in_flight.max(1) as usize];
        if config.placement == Placement::Staged {
            staging.extend(Staged::plan(config, layout, &calls));
        }
        let kept = list(config, layout, freq_bits);
        Self::new(config, layout, Allocated { kept, staging, scratch }, freq_bits)
    }
}

/// The scratch of a flush.
fn flush(layout: &Layout) -> Vec<Allocation> {
    let mut make = Make::plan();
    let _space = FlushSpace::of(&mut make, layout);
    make.made()
}

/// The buffers that stay between steps: the buffers of [`Tables`], and one that only fills bindings.
fn list(config: &GroupConfig, layout: &Layout, freq_bits: u32) -> Vec<Allocation> {
    let [tables, features] = table_bytes(config);
    let ways = 16 * u64::from(layout.slots().max(layout.ways));
    let shares = (layout.shares.len().max(1) * size_of::<Share>()) as u64;
    let mut list = vec![("tables", tables), ("features", features), ("shares", shares), ("ways", ways), ("dummy", 16)];
    list.extend(layout.windows_bytes().map(|bytes| ("cache", bytes)));
    // A staged table has its records in the store.
    let pieces = if config.placement == Placement::Staged { 0 } else { layout.pieces };
    list.extend((0..pieces).map(|piece| ("records", u64::from(layout.piece_rows(piece)) * layout.stride())));
    let mut list: Vec<_> = list.into_iter().map(|(what, bytes)| (what, buffer_bytes(bytes))).collect();
    list.extend(layout.freq_pieces().flat_map(|piece| {
        let bytes = (u64::from(piece.rows) * u64::from(freq_bits)).div_ceil(32) * 4;
        [("freqs", buffer_bytes(bytes)), ("uniform", PIECE_UNIFORM)]
    }));
    list
}
