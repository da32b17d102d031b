//! The memory of a parameter-shared group.

use crate::{
    error::Error,
    gpu::{
        engine::{readback::REPORT_BYTES, scratch::Make},
        memory::sizes,
        robe::SharedGroup,
        stages::robe::{
            array::Array,
            space::{Chunks, Scattered, Space},
        },
    },
    memory::{Allocated, Allocation, Calls, MemoryReport, TableMemory, buffer_bytes, sum, table_bytes},
    robe::{
        config::{Backward, Config},
        storage::Storage,
    },
};

impl SharedGroup {
    /// The bytes that the group has allocated, by purpose. Scratch is as large as the batches so far have made it. Rows take no memory.
    pub(crate) fn allocated(&self) -> MemoryReport {
        // Destructured without `..`, so that a new buffer must be added here.
        let Array { tables, features, memory, states, storage, robe: _, window: _ } = &self.kind.array;
        let kept = [tables, features, &self.dummy].into_iter().chain(memory).chain(states);
        let spaces = [&self.kind.train, &self.kind.frozen].into_iter().flatten().map(|space| &space.made);
        let spaces = spaces
            .chain(self.kind.chunks.iter().map(|chunks| &chunks.made))
            .chain(self.kind.scattered.iter().map(|scattered| &scattered.made));
        let sums = self.sums.buffer().map(|sums| ("outputs", sums.size()));
        let buffers = Allocated {
            kept: sizes(list(&self.kind.config, storage), kept),
            staging: self.reports.allocations(),
            scratch: spaces.flatten().copied().chain(sums).collect(),
        };
        MemoryReport::of_robe(&self.kind.config, buffers)
    }
}

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
        let make = &mut Make::plan();
        let spaces = [calls.train, calls.frozen].into_iter().flatten();
        let mut scratch: Vec<_> =
            spaces.flat_map(|indices| Space::of(make, indices)).flat_map(|space| space.made).collect();
        if config.backward == Backward::Atomic {
            scratch.extend(Scattered::of(make, config).into_iter().flat_map(|scattered| scattered.made));
        } else if chunks > 0 {
            scratch.extend(Chunks::of(make, &config.robe(), chunks).into_iter().flat_map(|chunks| chunks.made));
        }
        scratch.extend(calls.outputs());
        let staging = vec![("report", REPORT_BYTES); calls.in_flight.max(1) as usize];
        Self::of_robe(config, Allocated { kept: list(config, storage), staging, scratch })
    }

    /// Divides the bytes of the buffers by purpose.
    fn of_robe(config: &Config, buffers: Allocated) -> Self {
        let table = |&rows: &u32| TableMemory { rows: u64::from(rows), ..TableMemory::default() };
        let scales = u64::from(config.blocks()) * u64::from(config.precision.format().head_bytes(config.block));
        let robe = config.robe();
        let state_scales = if robe.state_bits == 8 { 4 * u64::from(config.blocks()) } else { 0 };
        let report = Self {
            rows: config.tables.iter().map(|&rows| u64::from(rows)).sum(),
            dim: config.dim,
            state: config.dim * config.states(),
            tables: config.tables.iter().map(table).collect(),
            payload: (u64::from(config.weights) * u64::from(config.precision.bits())).div_ceil(8),
            scales,
            record_state: u64::from(config.weights) * u64::from(robe.state_bits * config.states()) / 8 + state_scales,
            counters: table_bytes(&config.rows()).iter().sum(),
            host: sum(&buffers.staging),
            formula: config.factor(),
            ..Self::default()
        };
        report.with(buffers)
    }
}

/// The buffers of an [`Array`], and one that only fills bindings.
fn list(config: &Config, storage: &Storage) -> Vec<Allocation> {
    let windows = config.window_words(storage);
    let [tables, features] = table_bytes(&config.rows());
    let weights = windows.iter().map(|window| ("weights", 4 * window.memory as u64));
    let states = windows.iter().map(|window| ("states", 4 * window.states as u64));
    let list = [("tables", tables), ("features", features), ("dummy", 16)].into_iter().chain(weights).chain(states);
    list.map(|(what, bytes)| (what, buffer_bytes(bytes))).collect()
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
        assert_eq!((report.counters, report.padding), (4 * (4 + 2 * 28) + 20 * 2, 16 + 8));
        assert_eq!((report.scratch, report.staging, report.host), (0, 80, 80));
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
        let full = Config { state: Some(crate::config::StatePrecision::Fp32), ..int8.clone() };
        let stated = MemoryReport::plan_robe(&full, Calls::default()).unwrap();
        assert_eq!((stated.record_state, full.table_bytes() - int8.table_bytes()), (8000, 2 * 64 * 32));
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
