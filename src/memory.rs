//! What a group of tables takes: the papers' formula, and every byte by purpose.

use std::fmt;

use crate::{GroupConfig, Layout, Policy, Precision, layout::table_words};

/// Memory of a table against FP32 by the formula of P1's appendix A: `k/32`, integers `+ 64/(32 d)` (scale and bias); with a
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

/// Every byte that is allocated for a group, by purpose. What a call allocates in passing and gives back (uploads,
/// downloads, uniforms) is not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryReport {
    /// Rows of all tables.
    pub rows: u64,
    /// Floats in a row.
    pub dim: u32,
    /// Floats of optimiser state a row.
    pub state: u32,
    /// Weights as the table stores them.
    pub payload: u64,
    /// Scale and bias of each row.
    pub scales: u64,
    /// Optimiser state in the records.
    pub record_state: u64,
    /// Ends of records up to 4 bytes, of a slot's state up to 16 and of buffers up to 16, and buffers that are there only to be bound.
    pub padding: u64,
    /// FP32 weights of the cache.
    pub cache_weights: u64,
    /// FP32 optimiser state of the cache.
    pub cache_state: u64,
    /// Tag, stamp, frequency and dirty flag of each slot.
    pub cache_metadata: u64,
    /// The frequency of each row (LFU).
    pub frequencies: u64,
    /// Step number, bases, counters, features, shard uniforms.
    pub tables: u64,
    /// What steps and flushes have needed so far; it grows with the largest batch.
    pub scratch: u64,
}

impl MemoryReport {
    /// What a group keeps between steps, without any scratch; no device is asked.
    #[must_use]
    pub fn of(config: &GroupConfig, layout: &Layout) -> Self {
        let (rows, slots) = (u64::from(layout.total_rows), u64::from(layout.slots()));
        let (dim, state) = (u64::from(layout.dim), u64::from(layout.state));
        let lfu = config.policy == Policy::Lfu;
        let features = u64::from(config.feature_count());
        let words = table_words(config).len() as u64;
        let freq_shards = layout.freq_shards(config.policy).count() as u64;
        let mut report = Self {
            rows,
            dim: layout.dim,
            state: layout.state,
            payload: rows * (dim * u64::from(layout.precision.bits())).div_ceil(8),
            scales: if layout.precision.is_integer() { rows * 8 } else { 0 },
            record_state: rows * state * if layout.state_half { 2 } else { 4 },
            padding: 0,
            cache_weights: slots * dim * 4,
            cache_state: slots * state * 4,
            cache_metadata: slots * 16,
            frequencies: if lfu { rows * 4 } else { 0 },
            tables: 4 * (words + features) + shard_uniforms(layout) + 16 * freq_shards,
            scratch: 0,
        };
        let shards = (0..layout.shards).map(|shard| {
            let rows = u64::from(layout.shard_rows(shard));
            buffer_bytes(rows * layout.stride())
        });
        let freqs = layout.freq_shards(config.policy);
        let freqs = freqs.map(|shard| buffer_bytes(if lfu { u64::from(shard.rows) * 4 } else { 0 }));
        let allocated = shards.sum::<u64>()
            + freqs.sum::<u64>()
            + buffer_bytes((slots * 16).max(512))
            + buffer_bytes(slots * u64::from(layout.slot_words()) * 4)
            + buffer_bytes(4 * words)
            + buffer_bytes(4 * features)
            + shard_uniforms(layout)
            + 16 * freq_shards
            + 16; // stands where a batch has no weights
        report.padding = allocated - report.total();
        report
    }

    /// All of it.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.lines().iter().map(|(_, bytes)| bytes).sum()
    }

    /// What stays between steps: all but the scratch.
    #[must_use]
    pub fn kept(&self) -> u64 {
        self.total() - self.scratch
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
    pub fn lines(&self) -> [(&'static str, u64); 10] {
        [
            ("payload", self.payload),
            ("scales and biases", self.scales),
            ("optimiser state, table", self.record_state),
            ("padding", self.padding),
            ("cache weights", self.cache_weights),
            ("optimiser state, cache", self.cache_state),
            ("cache metadata", self.cache_metadata),
            ("row frequencies", self.frequencies),
            ("counters and tables", self.tables),
            ("step scratch", self.scratch),
        ]
    }
}

/// Two uniforms for each shard.
fn shard_uniforms(layout: &Layout) -> u64 {
    2 * 16 * u64::from(layout.shards)
}

/// What a buffer for `bytes` takes: `Context::buffer` rounds up.
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
        writeln!(f, "{:<24}{:>16.4}", "factor against FP32", self.factor())?;
        write!(f, "{:<24}{:>16.4}", "the same, FP32 state too", self.factor_with_state())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Optimizer, Precision::*};

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
        // P1 5.2.3 prints 0.259 here, less than INT8 takes without any cache.
        assert!((memory_factor(128, Int8, 0.01, Policy::Lru) - 0.275703125).abs() < 1e-12);
    }

    #[test]
    fn the_report_agrees_with_the_formula_but_for_what_that_leaves_out() {
        let mut config = GroupConfig::new(&[64_000], 128);
        config.cache_rows = 6_400;
        config.policy = Policy::Lfu;
        config.optimizer = Optimizer::sgd(0.1);
        let layout = Layout::new(&config, 1 << 30).unwrap();
        let report = MemoryReport::of(&config, &layout);
        // Stamps, frequencies beside the tags and dirty flags: 12 bytes a slot the formula does not have.
        let more = (report.tables + report.padding + 12 * u64::from(layout.slots())) as f64 / (64_000.0 * 128.0 * 4.0);
        assert!((report.factor() - more - 0.37421875).abs() < 1e-12, "{report}");
        assert_eq!(report.factor(), report.factor_with_state(), "SGD has no state");
        assert_eq!(report.kept(), report.total());
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
        let report = MemoryReport::of(&config, &layout);
        assert_eq!((report.payload, report.scales, report.record_state), (17 * 3, 17 * 8, 17 * 10));
        assert_eq!((report.cache_weights, report.cache_state, report.cache_metadata), (640, 640, 512));
        // Two uniforms a shard, and one of the frequencies that LRU does not keep.
        assert_eq!(report.tables, 4 * (4 + 2 * 28) + 4 * 2 + (2 * 2 + 1) * 16);
        // 3 bytes a record; the second shard's 168 bytes up to 176; two features' 8 up to 16; no weights, and no frequencies.
        assert_eq!(report.padding, 17 * 3 + 8 + 8 + 2 * 16);
        assert_eq!(report.optimizer_state(), 170 + 640);
        let text = report.to_string();
        assert!(text.contains("padding") && !text.contains("frequencies"), "{text}");
    }
}
