//! What a group of tables takes: the papers' formula, and every byte by purpose.

use std::fmt;

use crate::{
    config::{GroupConfig, Placement, Policy, Precision, setters},
    table::layout::{Layout, Shard, table_words},
};

/// Memory of a table against FP32 by the formula of Yang 2020, appendix A: `k/32`, integers `+ 64/(32 d)` (scale and bias); with a
/// cache of `cache_fraction` of the rows `+ c + c/d` (its tags) and under LFU `+ 1/d` (a counter for every row).
///
/// The formula knows no optimiser state, stamps or step scratch; [`MemoryReport`] does.
#[must_use]
pub fn memory_factor(dim: u32, precision: Precision, cache_fraction: f64, policy: Policy) -> f64 {
    let (d, c) = (f64::from(dim), cache_fraction);
    let mut factor = f64::from(precision.bits()) / 32.0;
    if precision.is_integer() {
        factor += 64.0 / (32.0 * d);
    }
    if c > 0.0 {
        factor += c + c / d;
        if policy == Policy::Lfu {
            factor += 1.0 / d;
        }
    }
    factor
}

/// What a group will be asked for, as far as memory goes. `Calls::from(indices)`: steps of up to so many indices, frozen steps of
/// as many, a flush.
///
/// ```
/// use hotrow::{Calls, GroupConfig, Layout, MemoryReport};
///
/// let config = GroupConfig::new(&[1000], 16).with_cache_rows(64);
/// let layout = Layout::new(&config, 128 << 20)?;
/// let idle = MemoryReport::plan(&config, &layout, Calls::default());
/// let busy = MemoryReport::plan(&config, &layout, Calls::from(4096).with_prefetch(true));
/// assert!(busy.total() > idle.total());
/// # Ok::<(), hotrow::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
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

setters!(Calls {
    with_train train: Option<u32>,
    with_prefetch prefetch: bool,
    with_frozen frozen: Option<u32>,
    with_flush flush: bool,
    with_in_flight in_flight: u32,
});

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

/// What the rows of one table take; the tables of a group share the rest.
///
/// Example: [`MemoryReport`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableMemory {
    /// Rows of the table.
    pub rows: u64,
    /// Weights as the table stores them.
    pub payload: u64,
    /// Scale and bias of each row.
    pub scales: u64,
    /// Optimiser state in the records.
    pub state: u64,
    /// Ends of records up to 4 bytes.
    pub padding: u64,
    /// The frequency of each row (LFU).
    pub frequencies: u64,
}

impl TableMemory {
    fn of(rows: u64, layout: &Layout, policy: Policy) -> Self {
        let (dim, state) = (u64::from(layout.row.dim), u64::from(layout.row.state));
        let payload = rows * (dim * u64::from(layout.row.precision.bits())).div_ceil(8);
        let scales = if layout.row.precision.is_integer() { rows * 8 } else { 0 };
        let state = rows * state * if layout.row.state_half { 2 } else { 4 };
        Self {
            rows,
            payload,
            scales,
            state,
            padding: rows * layout.stride() - payload - scales - state,
            frequencies: if policy == Policy::Lfu { rows * 4 } else { 0 },
        }
    }

    /// All of it.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.payload + self.scales + self.state + self.padding + self.frequencies
    }
}

/// A buffer's name, without `hotrow.`, and its bytes.
pub type Allocation = (&'static str, u64);

/// Every byte that is allocated for a group, by purpose: of a living one ([`Lookup::memory`](crate::Lookup::memory)), or of one that
/// is yet to be ([`MemoryReport::plan`], [`MemoryReport::plan_robe`]). A shared array's weights are its `payload`, their optimiser state its
/// `record_state`; it has no cache, and its tables' rows take nothing.
///
/// What a call allocates in passing and gives back (uploads, downloads) is not in it, nor are the uniforms that a context keeps
/// for all its groups, at most 1,024 of 16 to 128 bytes.
///
/// ```
/// use hotrow::{CpuGroup, GroupConfig, Precision};
///
/// let group = CpuGroup::new(GroupConfig::new(&[1000], 16).with_precision(Precision::Int8).with_cache_rows(64))?;
/// let bytes = group.memory();
/// assert_eq!((bytes.payload, bytes.scales, bytes.cache_weights), (1000 * 16, 1000 * 8, 64 * 16 * 4));
/// assert_eq!(bytes.tables[0].total(), 1000 * 24);
/// # Ok::<(), hotrow::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct MemoryReport {
    /// Rows of all tables.
    pub rows: u64,
    /// Floats in a row.
    pub dim: u32,
    /// Floats of optimiser state a row.
    pub state: u32,
    /// What each table's rows take: parts of `payload`, `scales`, `record_state`, `padding` and `frequencies`.
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
    /// The frequency of each row (LFU).
    pub frequencies: u64,
    /// Step number, bases, counters, features, shard uniforms.
    pub counters: u64,
    /// What crosses between host and device: 64 bytes for the outcome of each step under way; the flights and the ring of a staged table.
    pub staging: u64,
    /// What steps and flushes need; it grows with the largest batch.
    pub scratch: u64,
    /// Ends of records up to 4 bytes, of a slot's state up to 16 and of buffers up to 16, and buffers that are there only to be bound.
    pub padding: u64,
    /// Of all that, bytes in the host's memory: the records unless they live on the device, and the staging.
    pub host: u64,
    /// [`memory_factor`]: the papers' formula, beside [`factor`](Self::factor). Of a shared array ROBE's: its bytes against the FP32 rows.
    pub formula: f64,
    /// Every buffer, ascending by name and bytes.
    pub allocations: Vec<Allocation>,
}

/// The buffers of a group, read off them or planned.
pub(crate) struct Allocated {
    /// What stays between steps.
    pub(crate) kept: Vec<Allocation>,
    pub(crate) staging: Vec<Allocation>,
    pub(crate) scratch: Vec<Allocation>,
}

pub(crate) fn sum(allocations: &[Allocation]) -> u64 {
    allocations.iter().map(|(_, bytes)| bytes).sum()
}

impl MemoryReport {
    /// What of these buffers serves which purpose. What none of the purposes explains is padding.
    pub(crate) fn new(config: &GroupConfig, layout: &Layout, buffers: Allocated) -> Self {
        let slots = u64::from(layout.slots());
        let tables: Vec<_> =
            config.tables.iter().map(|&rows| TableMemory::of(u64::from(rows), layout, config.policy)).collect();
        let over = |of: fn(&TableMemory) -> u64| tables.iter().map(of).sum::<u64>();
        let Allocated { kept, staging, scratch } = buffers;
        let in_host = |what| match config.placement {
            Placement::Device | Placement::Auto => false,
            Placement::Mapped => what == "records",
            Placement::Staged => what == "store",
        };
        let rows = over(|table| table.rows);
        let mut report = Self {
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
            counters: counters(config, layout),
            staging: sum(&staging),
            scratch: sum(&scratch),
            padding: 0,
            host: staging.iter().filter(|(what, _)| *what != "flight").map(|(_, bytes)| bytes).sum::<u64>()
                + kept.iter().filter(|(what, _)| in_host(*what)).map(|(_, bytes)| bytes).sum::<u64>(),
            formula: memory_factor(
                layout.row.dim,
                layout.row.precision,
                f64::from(config.cache_rows) / rows as f64,
                config.policy,
            ),
            allocations: Vec::new(),
            tables,
        };
        report.padding = sum(&kept).saturating_sub(report.kept());
        report.allocations = [kept, staging, scratch].concat();
        report.allocations.sort_unstable();
        report
    }

    /// All of it: the sum of [`lines`](Self::lines), which is that of all allocations.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.lines().iter().map(|(_, bytes)| bytes).sum()
    }

    /// What stays between steps: all but scratch and staging.
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
    #[must_use]
    pub fn largest(&self) -> Allocation {
        let buffers = self.allocations.iter().filter(|(name, _)| !["store", "ring"].contains(name));
        buffers.copied().max_by_key(|&(_, bytes)| bytes).unwrap_or_default()
    }

    /// Optimiser state, in records and cache.
    #[must_use]
    pub fn optimizer_state(&self) -> u64 {
        self.record_state + self.cache_state
    }

    /// [`total`](Self::total), optimiser state included, against the weights alone of an FP32 table of the same rows.
    #[must_use]
    pub fn factor(&self) -> f64 {
        self.total() as f64 / (self.rows as f64 * f64::from(self.dim) * 4.0)
    }

    /// [`total`](Self::total) against an FP32 table of the same rows that has the same optimiser's state in FP32.
    #[must_use]
    pub fn factor_with_state(&self) -> f64 {
        self.total() as f64 / (self.rows as f64 * (f64::from(self.dim) + f64::from(self.state)) * 4.0)
    }

    /// Name and bytes of each purpose.
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

/// What a buffer for `bytes` takes: at least one Quad, and whole ones.
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
        writeln!(f, "{:<24}{:>16.4}", "factor, Yang 2020", self.formula)?;
        writeln!(f, "{:<24}{:>16.4}", "factor against FP32", self.factor())?;
        write!(f, "{:<24}{:>16.4}", "the same, FP32 state too", self.factor_with_state())
    }
}

/// Bytes of the uniform that names a shard.
pub(crate) const SHARD_UNIFORM: u64 = size_of::<Shard>() as u64;

pub(crate) fn table_bytes(config: &GroupConfig) -> [u64; 2] {
    [4 * table_words(config).len() as u64, 4 * u64::from(config.feature_count())]
}

/// Uniforms of the shards: two for each of the records', one for each buffer of frequencies.
pub(crate) fn uniforms(config: &GroupConfig, layout: &Layout) -> usize {
    let shards = if config.placement == Placement::Staged { 0 } else { layout.shards };
    2 * shards as usize + layout.freq_shards(config.policy).count()
}

/// Step number, bases, counters, features, shard uniforms, before buffers are rounded up.
pub(crate) fn counters(config: &GroupConfig, layout: &Layout) -> u64 {
    table_bytes(config).iter().sum::<u64>() + SHARD_UNIFORM * uniforms(config, layout) as u64
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
        // Yang 2020, section 5.2.3, prints 0.259 here, less than INT8 takes without any cache.
        assert!((memory_factor(128, Int8, 0.01, Policy::Lru) - 0.275703125).abs() < 1e-12);
    }

    #[test]
    fn the_report_agrees_with_the_formula_but_for_what_that_leaves_out() {
        let mut config = GroupConfig::new(&[64_000], 128);
        config.cache_rows = 6_400;
        config.policy = Policy::Lfu;
        config.optimizer = Optimizer::sgd(0.1);
        let layout = Layout::new(&config, 1 << 30).unwrap();
        let report = MemoryReport::plan(&config, &layout, Calls::default());
        // Stamps, frequencies beside the tags and dirty flags: 12 bytes a slot the formula does not have.
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
        config.shard_bytes = Some(240);
        let layout = Layout::new(&config, 1 << 30).unwrap();
        // Scale and bias, 5 halves of state, 5 codes: 8 + 10 + 2.5 bytes make records of 24, 10 a shard.
        assert_eq!((layout.stride(), layout.shards), (24, 2));
        let report = MemoryReport::plan(&config, &layout, Calls::default());
        assert_eq!((report.payload, report.scales, report.record_state), (17 * 3, 17 * 8, 17 * 10));
        assert_eq!((report.cache_weights, report.cache_state, report.tags, report.stamps), (640, 640, 128, 384));
        // Two uniforms a shard, and one of the frequencies that LRU does not keep.
        assert_eq!(report.counters, 4 * (4 + 2 * 28) + 4 * 2 + (2 * 2 + 1) * 48);
        // 3 bytes a record; the second shard's 168 bytes up to 176; two features' 8 up to 16; no weights, and no frequencies.
        assert_eq!(report.padding, 17 * 3 + 8 + 8 + 2 * 16);
        assert_eq!(report.optimizer_state(), 170 + 640);
        let text = report.to_string();
        assert!(text.contains("padding") && !text.contains("frequencies"), "{text}");
    }
}
