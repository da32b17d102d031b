//! Plans the allocations of a parameter-shared group.

use crate::{
    error::Error,
    gpu::{
        engine::readback::REPORT_BYTES,
        stages::robe::space::{Chunks, Scattered, Space},
    },
    memory::{Allocated, Allocation, Calls, MemoryReport, TableMemory, buffer_bytes, sum},
    robe::{
        config::{Backward, Config},
        storage::Storage,
    },
    table::layout::{Feature, table_words},
};

impl MemoryReport {
    /// The bytes of a parameter-shared group of this configuration once all `calls` have been made, each `train` call with its backward. No
    /// device is needed: `window_bytes` says into which windows a device's bindings cut the array; `None` stands for one window. The plan
    /// is exact to the byte, like [`MemoryReport::plan`]. It ignores prefetches and flushes, which such a group does not have.
    ///
    /// # Errors
    /// [`Error::Config`] for an illegal configuration ([`Config::check`]), [`Error::TooLarge`] for calls that the group cannot take.
    pub fn plan_robe(config: &Config, calls: impl Into<Calls>) -> Result<Self, Error> {
        let calls = calls.into();
        config.check()?;
        let chunks = |indices: Option<u32>| indices.map_or(Ok(0), |indices| config.batch_chunks(indices, 0));
        let (train, _) = (chunks(calls.train)?, chunks(calls.frozen)?);
        Ok(Self::planned_robe(config, &config.storage(), &calls, train))
    }

    /// As [`MemoryReport::plan_robe`], after the checks: `storage` is the array's, and the largest trained batch has `chunks` chunks.
    pub(crate) fn planned_robe(config: &Config, storage: &Storage, calls: &Calls, chunks: u32) -> Self {
        let mut scratch = Vec::new();
        let mut note = |what, bytes| {
            scratch.push((what, buffer_bytes(bytes)));
            Ok::<_, Error>(())
        };
        for indices in [calls.train, calls.frozen].into_iter().flatten() {
            // Adding a line cannot fail.
            let _space = Space::of(&mut note, indices);
        }
        if config.backward == Backward::Atomic {
            let _scattered = Scattered::of(&mut note, config);
        } else if chunks > 0 {
            let _chunks = Chunks::of(&mut note, &config.robe(), chunks);
        }
        scratch.extend(calls.half_outputs.map(|outputs| ("outputs", buffer_bytes(u64::from(outputs) * 4))));
        let staging = vec![("report", REPORT_BYTES); calls.in_flight.max(1) as usize];
        Self::of_robe(config, Allocated { kept: kept(config, storage), staging, scratch })
    }

    /// Divides the bytes of the buffers by purpose.
    pub(crate) fn of_robe(config: &Config, buffers: Allocated) -> Self {
        let Allocated { kept, staging, scratch } = buffers;
        let tables: Vec<_> = config.tables.iter().map(|&rows| TableMemory::of_robe(u64::from(rows))).collect();
        let bits = u64::from(config.precision.bits());
        let payload = (u64::from(config.weights) * bits).div_ceil(8);
        let scales = if config.precision.is_integer() { 8 * u64::from(config.blocks()) } else { 0 };
        let state_bits = u64::from(config.robe().state_bits * config.states());
        let state_scales = if config.robe().state_bits == 8 { 4 * u64::from(config.blocks()) } else { 0 };
        let mut report = Self {
            rows: tables.iter().map(|table| table.rows).sum(),
            dim: config.dim,
            state: config.dim * config.states(),
            tables,
            payload,
            scales,
            record_state: u64::from(config.weights) * state_bits / 8 + state_scales,
            cache_weights: 0,
            cache_state: 0,
            tags: 0,
            stamps: 0,
            frequencies: 0,
            counters: table_bytes(config).iter().sum(),
            staging: sum(&staging),
            scratch: sum(&scratch),
            padding: 0,
            host: sum(&staging),
            huge_pages: 0,
            formula: config.factor(),
            allocations: Vec::new(),
        };
        report.padding = sum(&kept).saturating_sub(report.kept());
        report.allocations = [kept, staging, scratch].concat();
        report.allocations.sort_unstable();
        report
    }
}

impl TableMemory {
    /// A table whose rows take no memory.
    const fn of_robe(rows: u64) -> Self {
        Self { rows, payload: 0, scales: 0, state: 0, padding: 0, frequencies: 0 }
    }
}

/// Bytes of step number, bases and counters, and of the features.
fn table_bytes(config: &Config) -> [u64; 2] {
    let rows = config.rows();
    [4 * table_words(&rows).len() as u64, size_of::<Feature>() as u64 * u64::from(rows.feature_count())]
}

/// The buffers of [`Array`](crate::gpu::stages::robe::array::Array), and the dummy buffer.
fn kept(config: &Config, storage: &Storage) -> Vec<Allocation> {
    let windows = config.window_words(storage);
    let bytes = |words: usize| 4 * words as u64;
    let windows =
        windows.iter().flat_map(|window| [("weights", bytes(window.memory)), ("states", bytes(window.states))]);
    let [tables, features] = table_bytes(config);
    let all = windows.chain([("tables", tables), ("features", features), ("dummy", 16)]);
    all.map(|(what, bytes)| (what, buffer_bytes(bytes))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Optimizer, Precision};

    #[test]
    fn every_byte_has_a_purpose() {
        let config = Config { optimizer: Optimizer::adagrad(0.1), ..Config::new(&[1000, 250], 16, 2000, 5) };
        let report = MemoryReport::plan_robe(&config, Calls::default()).unwrap();
        assert_eq!((report.payload, report.record_state, report.rows, report.formula), (8000, 8000, 1250, 0.1));
        // Clock and two tables; two features; the dummy buffer.
        assert_eq!((report.counters, report.padding), (4 * (4 + 2 * 28) + 16 * 2, 16));
        assert_eq!((report.scratch, report.staging, report.host), (0, 64, 64));
        assert_eq!(report.total(), report.allocations.iter().map(|(_, bytes)| bytes).sum::<u64>());
        assert_eq!(report.kept(), 16_000 + report.counters + report.padding);
        // The array is 0.2 of the FP32 rows with its state, and half as much if the rows have their state, too.
        let (weights, state) = (report.factor(), report.factor_with_state());
        assert!((weights - 2.0 * state).abs() < 1e-12 && weights > 0.2 && weights < 0.21, "{report}");
        // Blocks of 64 codes, the last with 16: 32 blocks with scale and bias, and 48 unused places in codes and FP16 states.
        let int8 = Config { precision: Precision::Int8, ..config.clone() };
        let packed = MemoryReport::plan_robe(&int8, Calls::default()).unwrap();
        assert_eq!((packed.payload, packed.scales, packed.record_state), (2000, 8 * 32, 4000));
        assert_eq!((packed.padding, packed.formula), (report.padding + 48 * 3, (2000.0 + 8.0 * 32.0) / 80_000.0));
        assert_eq!(packed.kept(), int8.table_bytes() + packed.counters + report.padding);
        // Rows take no memory: ten times as many rows change no byte.
        let total = |config: &Config| MemoryReport::plan_robe(config, Calls::default()).unwrap().total();
        assert_eq!(total(&Config { tables: vec![10_000, 2500], ..config.clone() }), report.total());
        assert!(total(&Config { weights: 2004, ..config }) > report.total());
    }

    #[test]
    fn what_cannot_be_has_no_plan() {
        let good = Config::new(&[1000, 250], 16, 2000, 5);
        let refused = |config: Config, calls: Calls| MemoryReport::plan_robe(&config, calls).unwrap_err();
        for (field, config) in [
            ("weights", Config { weights: 4, ..good.clone() }),
            ("weights", Config { weights: u32::MAX, ..good.clone() }),
            ("chunk", Config { chunk: 0, ..good.clone() }),
            ("dim", Config { dim: 0, ..good.clone() }),
            ("block", Config { block: 0, ..good.clone() }),
            ("window_bytes", Config { window_bytes: Some(3), ..good.clone() }),
            ("optimizer", Config { optimizer: Optimizer::row_wise_adagrad(0.1), ..good.clone() }),
        ] {
            let error = refused(config, Calls::default());
            assert!(matches!(error, Error::Config { field: found, .. } if found == field), "{field}: {error}");
        }
        // Each index has four chunks.
        let (train, frozen) = (Some(1 << 28), Some(1 << 28));
        for calls in [Calls { train, ..Calls::default() }, Calls { frozen, ..Calls::default() }] {
            let error = refused(good.clone(), calls);
            assert!(matches!(error, Error::TooLarge { what: "batch's chunks", .. }), "{error}");
        }
        MemoryReport::plan_robe(&good, 1 << 20).unwrap();
    }
}
