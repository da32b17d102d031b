//! The memory of a group of tables: the formula of Yang 2020, and every byte by purpose.

use std::fmt;

use crate::{
    config::{GroupConfig, Placement, Policy, PolicyFacts, Precision, setters},
    table::{
        abi::{Feature, Piece, Share, table_words},
        layout::Layout,
    },
};

/// Memory of a table as a share of its size in FP32, by the formula of Yang 2020, appendix A: `k/32`; plus `64/(32 d)` for the scale and
/// bias of integers; with a cache of `cache_fraction` of the rows plus `c + c/d` (slots and tags), and `+ 1/d` under LFU (a counter of
/// 4 bytes for every row) or `+ 1/(8 d)` under Window (one of 4 bits).
///
/// The formula leaves out optimiser state, stamps and step scratch; [`MemoryReport`] includes them.
#[must_use]
pub fn memory_factor(dim: u32, precision: Precision, cache_fraction: f64, policy: Policy) -> f64 {
    let (d, c) = (f64::from(dim), cache_fraction);
    let head = f64::from(precision.format().head_bytes(dim));
    let mut factor = f64::from(precision.bits()) / 32.0 + head / (4.0 * d);
    if c > 0.0 {
        factor += c + c / d;
        factor += match policy.facts() {
            PolicyFacts { counts: false, .. } => 0.0,
            PolicyFacts { ages: true, .. } => 1.0 / (8.0 * d),
            _ => 1.0 / d,
        };
    }
    factor
}

/// The calls that a group must have memory for. `Calls::from(indices)` stands for steps of up to `indices` indices, frozen steps of the
/// same size, and a flush.
///
/// ```
/// use hotrow::{Calls, GroupConfig, MemoryReport};
///
/// let config = GroupConfig::new(&[1000], 16).with_cache_rows(64);
/// let idle = MemoryReport::plan(&config, 128 << 20, Calls::default())?; // a device that binds 128 MiB at once
/// let busy = MemoryReport::plan(&config, 128 << 20, Calls::from(4096).with_prefetch(true))?;
/// assert!(busy.total() > idle.total());
/// # Ok::<(), hotrow::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Calls {
    /// Indices of the largest forward, with or without its backward; `None` if there is none.
    pub train: Option<u32>,
    /// Whether batches are prefetched while the last one waits for its backward. Each of the two then has its own scratch.
    pub prefetch: bool,
    /// Indices of the largest frozen forward, or the most rows read or written at once.
    pub frozen: Option<u32>,
    /// Whether the cache is ever flushed, or rows are pinned.
    pub flush: bool,
    /// Outputs of the largest forward with FP16 outputs; `None` if there is none. A group on a device rounds them from FP32.
    pub half_outputs: Option<u32>,
    /// Most encoded calls at once that the device has not reported yet, backwards too; at least one is planned for.
    pub in_flight: u32,
}

setters!(Calls {
    with_train train: Option<u32>,
    with_prefetch prefetch: bool,
    with_frozen frozen: Option<u32>,
    with_flush flush: bool,
    with_half_outputs half_outputs: Option<u32>,
    with_in_flight in_flight: u32,
});

impl Calls {
    /// The FP32 outputs that are rounded.
    pub(crate) fn outputs(&self) -> Option<Allocation> {
        self.half_outputs.map(|outputs| ("outputs", buffer_bytes(u64::from(outputs) * 4)))
    }
}

impl From<u32> for Calls {
    fn from(indices: u32) -> Self {
        Self { train: Some(indices), frozen: Some(indices), flush: true, in_flight: 1, ..Self::default() }
    }
}

/// Bytes of the rows of one table. The tables of a group share all other memory.
///
/// Example: [`MemoryReport`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableMemory {
    /// Rows of the table.
    pub rows: u64,
    /// Weights as the table stores them.
    pub payload: u64,
    /// Scales and biases.
    pub scales: u64,
    /// Optimiser state in the records.
    pub state: u64,
    /// Padding of the records to multiples of 4 bytes.
    pub padding: u64,
    /// The counter of each row (LFU, Window).
    pub frequencies: u64,
}

impl TableMemory {
    /// A counter has `freq_bits`, 0 without counters.
    fn of(rows: u64, layout: &Layout, freq_bits: u32) -> Self {
        let dim = u64::from(layout.row.dim);
        let payload = rows * (dim * u64::from(layout.row.precision.bits())).div_ceil(8);
        let scales = rows * u64::from(layout.row.precision.format().head_bytes(layout.row.dim));
        let state = rows * layout.row.state_bytes();
        Self {
            rows,
            payload,
            scales,
            state,
            padding: rows * layout.stride() - payload - scales - state,
            frequencies: (rows * u64::from(freq_bits)).div_ceil(8),
        }
    }

    /// This table's rows and more of them.
    const fn and(self, more: Self) -> Self {
        Self {
            rows: self.rows + more.rows,
            payload: self.payload + more.payload,
            scales: self.scales + more.scales,
            state: self.state + more.state,
            padding: self.padding + more.padding,
            frequencies: self.frequencies + more.frequencies,
        }
    }

    /// The sum of all fields in bytes.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.payload + self.scales + self.state + self.padding + self.frequencies
    }
}

/// A buffer's name, without `hotrow.`, and its bytes.
pub(crate) type Allocation = (&'static str, u64);

/// The bytes that are allocated for a group, by purpose, either for an existing group ([`Lookup::memory`](crate::Lookup::memory)) or for a
/// planned one ([`MemoryReport::plan`], [`MemoryReport::plan_robe`]). A shared array reports its weights as `payload` and their optimiser
/// state as `record_state`; it has no cache, and the rows of its tables take no memory.
///
/// The report leaves out buffers that a call allocates and frees again (uploads, downloads), and the uniforms that a context keeps for all
/// its groups, at most 1,024 of 16 to 132 bytes.
///
/// ```
/// use hotrow::{CpuGroup, GroupConfig, Precision, prelude::*};
///
/// let group = CpuGroup::new(GroupConfig::new(&[1000], 16).with_precision(Precision::Int8).with_cache_rows(64))?;
/// let bytes = group.memory();
/// assert_eq!((bytes.payload, bytes.scales, bytes.cache_weights), (1000 * 16, 1000 * 8, 64 * 16 * 4));
/// assert_eq!(bytes.tables[0].total(), 1000 * 24);
/// # Ok::<(), hotrow::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct MemoryReport {
    /// Rows of all tables.
    pub rows: u64,
    /// Weights of a row.
    pub dim: u32,
    /// Floats of optimiser state of a row.
    pub state: u32,
    /// Bytes of each table's rows: parts of `payload`, `scales`, `record_state`, `padding` and `frequencies`.
    pub tables: Vec<TableMemory>,
    /// Weights as the table stores them.
    pub payload: u64,
    /// Scale and bias of each row.
    pub scales: u64,
    /// Optimiser state in the records.
    pub record_state: u64,
    /// FP32 weights of the cache.
    pub cache_weights: u64,
    /// FP32 optimiser state of the cache.
    pub cache_state: u64,
    /// The row that each slot holds.
    pub tags: u64,
    /// Stamp, frequency and flags of each slot.
    pub stamps: u64,
    /// The counter of each row (LFU, Window).
    pub frequencies: u64,
    /// Step number, bases, counters, features, piece uniforms.
    pub counters: u64,
    /// Buffers for transfers between host and device: 80 bytes for the report of each encoded call under way; the transfers and the ring of a staged
    /// table.
    pub staging: u64,
    /// Scratch of steps and flushes. It grows with the largest batch.
    pub scratch: u64,
    /// Padding of records to 4 bytes, of a slot's state to 16 and of buffers to 16, and buffers that only fill a binding.
    pub padding: u64,
    /// The part of all these bytes that is in the host's memory: the records unless they are on the device, and the staging.
    pub host: u64,
    /// At most so many bytes of the records and the cache of a group on the CPU lie in huge pages, by Linux's report; 0 for other groups.
    pub huge_pages: u64,
    /// [`memory_factor`], the formula of Yang 2020, to compare with [`factor`](Self::factor). For a shared array it is ROBE's: its size as a
    /// share of the FP32 rows.
    pub formula: f64,
    /// Every buffer, ordered by name and bytes.
    pub allocations: Vec<Allocation>,
}

/// The buffers of a group, read off them or planned.
pub(crate) struct Allocated {
    /// Buffers that stay between steps.
    pub(crate) kept: Vec<Allocation>,
    pub(crate) staging: Vec<Allocation>,
    pub(crate) scratch: Vec<Allocation>,
}

pub(crate) fn sum(allocations: &[Allocation]) -> u64 {
    allocations.iter().map(|(_, bytes)| bytes).sum()
}

impl MemoryReport {
    /// Divides the bytes of the buffers by purpose. The counter of a row takes `freq_bits`.
    pub(crate) fn new(config: &GroupConfig, layout: &Layout, mut buffers: Allocated, freq_bits: u32) -> Self {
        let slots = u64::from(layout.slots());
        let tables: Vec<_> =
            config.tables.iter().map(|&rows| TableMemory::of(u64::from(rows), layout, freq_bits)).collect();
        let over = |of: fn(&TableMemory) -> u64| tables.iter().map(of).sum::<u64>();
        if config.placement == Placement::Staged {
            buffers.kept.push(("store", layout.table_bytes())); // the host's own memory, or a file
        }
        let in_host = |what| match config.placement {
            Placement::Device | Placement::Auto => false,
            Placement::Mapped => what == "records",
            Placement::Staged => what == "store",
        };
        let rows = over(|table| table.rows);
        let report = Self {
            rows,
            dim: layout.row.dim,
            state: layout.row.state,
            payload: over(|table| table.payload),
            scales: over(|table| table.scales),
            record_state: over(|table| table.state),
            cache_weights: slots * u64::from(layout.row.dim) * 4,
            cache_state: slots * u64::from(layout.row.state) * 4,
            tags: slots * 4,
            stamps: slots * 12,
            frequencies: over(|table| table.frequencies),
            counters: table_bytes(config).iter().sum::<u64>()
                + PIECE_UNIFORM * layout.freq_pieces().count() as u64
                + (layout.shares.len() * size_of::<Share>()) as u64,
            host: buffers.staging.iter().filter(|(what, _)| *what != "transfer").map(|(_, bytes)| bytes).sum::<u64>()
                + buffers.kept.iter().filter(|(what, _)| in_host(*what)).map(|(_, bytes)| bytes).sum::<u64>(),
            formula: memory_factor(
                layout.row.dim,
                layout.row.precision,
                f64::from(config.cache_rows).min(rows as f64) / rows as f64,
                config.policy,
            ),
            tables,
            ..Self::default()
        };
        report.with(buffers)
    }

    /// With these buffers, whose kept bytes that no purpose explains are padding.
    pub(crate) fn with(mut self, buffers: Allocated) -> Self {
        let Allocated { kept, staging, scratch } = buffers;
        self.padding = sum(&kept).saturating_sub(self.total());
        (self.staging, self.scratch) = (sum(&staging), sum(&scratch));
        self.allocations = [kept, staging, scratch].concat();
        self.allocations.sort_unstable();
        self
    }

    /// The report of two groups of one layout, whose tables are parts of the same.
    #[doc(hidden)]
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        let sums: [(&mut u64, u64); 12] = [
            (&mut self.payload, other.payload),
            (&mut self.scales, other.scales),
            (&mut self.record_state, other.record_state),
            (&mut self.cache_weights, other.cache_weights),
            (&mut self.cache_state, other.cache_state),
            (&mut self.tags, other.tags),
            (&mut self.stamps, other.stamps),
            (&mut self.frequencies, other.frequencies),
            (&mut self.counters, other.counters),
            (&mut self.staging, other.staging),
            (&mut self.scratch, other.scratch),
            (&mut self.padding, other.padding),
        ];
        sums.into_iter().for_each(|(sum, bytes)| *sum += bytes);
        for (table, more) in self.tables.iter_mut().zip(&other.tables) {
            *table = table.and(*more);
        }
        self.rows += other.rows;
        self.host += other.host;
        self.huge_pages += other.huge_pages;
        self.allocations.extend(other.allocations);
        self.allocations.sort_unstable();
        self
    }

    /// The sum of [`lines`](Self::lines), which is also the sum of all allocations.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.lines().iter().map(|(_, bytes)| bytes).sum()
    }

    /// Bytes that stay between steps: all but scratch and staging.
    #[doc(hidden)]
    #[must_use]
    pub fn kept(&self) -> u64 {
        self.total() - self.scratch - self.staging
    }

    /// Bytes in the device's memory.
    #[must_use]
    pub fn device(&self) -> u64 {
        self.total() - self.host
    }

    /// The largest buffer of the device.
    #[doc(hidden)]
    #[must_use]
    pub fn largest(&self) -> Allocation {
        let buffers = self.allocations.iter().filter(|(name, _)| !["store", "ring"].contains(name));
        buffers.copied().max_by_key(|&(_, bytes)| bytes).unwrap_or_default()
    }

    /// [`total`](Self::total), optimiser state included, as a share of the weights of an FP32 table with the same rows.
    #[must_use]
    pub fn factor(&self) -> f64 {
        self.total() as f64 / (self.rows as f64 * f64::from(self.dim) * 4.0)
    }

    /// [`total`](Self::total) as a share of an FP32 table with the same rows and the same optimiser's state in FP32.
    #[doc(hidden)]
    #[must_use]
    pub fn factor_with_state(&self) -> f64 {
        self.total() as f64 / (self.rows as f64 * (f64::from(self.dim) + f64::from(self.state)) * 4.0)
    }

    /// The name and the bytes of each purpose.
    #[must_use]
    pub fn lines(&self) -> [Allocation; 12] {
        [
            ("payload", self.payload),
            ("scales and biases", self.scales),
            ("optimiser state, table", self.record_state),
            ("cache weights", self.cache_weights),
            ("optimiser state, cache", self.cache_state),
            ("tags", self.tags),
            ("stamps and dirty flags", self.stamps),
            ("row frequencies", self.frequencies),
            ("counters and tables", self.counters),
            ("staging", self.staging),
            ("step scratch", self.scratch),
            ("padding", self.padding),
        ]
    }
}

/// Size of a buffer for `bytes` bytes: a multiple of 16, at least 16.
pub(crate) const fn buffer_bytes(bytes: u64) -> u64 {
    if bytes < 16 { 16 } else { bytes.next_multiple_of(16) }
}

impl fmt::Display for MemoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<24}{:>16}", "purpose", "bytes")?;
        for (name, bytes) in self.lines().into_iter().filter(|&(_, bytes)| bytes > 0) {
            writeln!(f, "{name:<24}{bytes:>16}")?;
        }
        writeln!(f, "{:<24}{:>16}", "total", self.total())?;
        writeln!(f, "{:<24}{:>16}", "of it in host memory", self.host)?;
        if self.huge_pages > 0 {
            writeln!(f, "{:<24}{:>16}", "of it in huge pages", self.huge_pages)?;
        }
        writeln!(f, "{:<24}{:>16.4}", "factor, Yang 2020", self.formula)?;
        writeln!(f, "{:<24}{:>16.4}", "factor against FP32", self.factor())?;
        write!(f, "{:<24}{:>16.4}", "the same, FP32 state too", self.factor_with_state())
    }
}

/// Bytes of the uniform that names a piece.
pub(crate) const PIECE_UNIFORM: u64 = size_of::<Piece>() as u64;

pub(crate) fn table_bytes(config: &GroupConfig) -> [u64; 2] {
    [4 * table_words(config).len() as u64, size_of::<Feature>() as u64 * u64::from(config.feature_count())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Optimizer, Precision::*};

    #[test]
    fn known_answers_of_the_formula() {
        for (dim, precision, fraction, policy, wanted) in [
            (128, Int8, 0.0, Policy::Lru, 0.265625),
            (128, Int8, 0.0, Policy::Lfu, 0.265625),
            (128, Fp16, 0.0, Policy::Lru, 0.5),
            (128, Fp32, 0.0, Policy::Lru, 1.0),
            (128, Int8, 0.1, Policy::Lfu, 0.37421875),
            (64, Int4, 0.0, Policy::Lru, 0.15625),
            (64, Int2, 0.0, Policy::Lru, 0.09375),
        ] {
            let factor = memory_factor(dim, precision, fraction, policy);
            assert!((factor - wanted).abs() < 1e-12, "{dim} {precision:?} {fraction} {policy:?}: {factor}");
        }
        // Yang 2020, section 5.2.3, prints 0.259 here, less than INT8 takes without a cache.
        assert!((memory_factor(128, Int8, 0.01, Policy::Lru) - 0.275703125).abs() < 1e-12);
    }

    #[test]
    fn the_report_agrees_with_the_formula_but_for_what_that_leaves_out() {
        let mut config = GroupConfig::new(&[64_000], 128);
        config.cache_rows = 6_400;
        config.policy = Policy::Lfu;
        config.optimizer = Optimizer::sgd(0.1);
        let layout = Layout::new(&config, 1 << 30).unwrap();
        let report = MemoryReport::planned(&config, &layout, Calls::default());
        // Stamps, frequencies and dirty flags take 12 bytes a slot that the formula does not have.
        let more = (report.counters + report.staging + report.padding + 12 * u64::from(layout.slots())) as f64
            / (64_000.0 * 128.0 * 4.0);
        assert!((report.factor() - more - 0.37421875).abs() < 1e-12, "{report}");
        assert_eq!(report.factor(), report.factor_with_state(), "SGD has no state");
        assert_eq!((report.formula, report.scratch), (0.37421875, 0));
    }

    #[test]
    fn every_byte_has_a_purpose() {
        let mut config = GroupConfig::new(&[10, 7], 5);
        config.precision = Int4;
        config.optimizer = Optimizer::adagrad(0.1);
        config.cache_rows = 1;
        config.piece_bytes = Some(240);
        let layout = Layout::new(&config, 1 << 30).unwrap();
        // Scale and bias, 5 halves of state, 5 codes: 8 + 10 + 2.5 bytes make records of 24, 10 a piece.
        assert_eq!((layout.stride(), layout.pieces), (24, 2));
        let report = MemoryReport::planned(&config, &layout, Calls::default());
        assert_eq!((report.payload, report.scales, report.record_state), (17 * 3, 17 * 8, 17 * 10));
        assert_eq!((report.cache_weights, report.cache_state, report.tags, report.stamps), (640, 640, 128, 384));
        // The uniform of the frequencies that LRU does not keep.
        assert_eq!(report.counters, 4 * (4 + 2 * 28) + 20 * 2 + 52);
        // 3 bytes a record; the second piece's 168 bytes up to 176; the features' 40 up to 48; no weights, no shares, and no frequencies.
        assert_eq!(report.padding, 17 * 3 + 8 + 8 + 2 * 16 + 32);
        assert_eq!(report.record_state + report.cache_state, 170 + 640);
        // FP32 beside INT4: 20 bytes of state a record; the cache has it in FP32 whatever the records have.
        config.state = Some(crate::config::StatePrecision::Fp32);
        let full = MemoryReport::planned(&config, &Layout::new(&config, 1 << 30).unwrap(), Calls::default());
        assert_eq!((full.record_state, full.cache_state, full.payload), (17 * 20, 640, report.payload));
        let text = report.to_string();
        assert!(text.contains("padding") && !text.contains("frequencies"), "{text}");
    }
}
