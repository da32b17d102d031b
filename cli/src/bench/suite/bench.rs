//! What all parts share: the device, the size, the run that they fill, and how their tables are configured.

use hotrow::{GroupConfig, Init, Optimizer, Pooling, Precision};
use std::path::PathBuf;

use super::size::Size;
use crate::failure::Failure;
use crate::lab::{Deadline, Lab};
use crate::report::run::Run;

/// TBE's and NVIDIA's width.
pub(super) const DIM: u32 = 128;

/// Figures of other libraries on the same machine.
#[derive(Debug)]
pub(super) struct Beside(Vec<serde_json::Value>);

impl Beside {
    pub(super) fn read(paths: &[PathBuf]) -> Result<Self, Failure> {
        let read = |path: &PathBuf| {
            let text = std::fs::read_to_string(path).map_err(|cause| cause.to_string());
            text.and_then(|text| serde_json::from_str(&text).map_err(|cause| cause.to_string())).map_err(|cause| {
                Failure::Usage(format!(
                    "--beside: wanted JSON written by benches/side_by_side.py, found {}: {cause}; run that script on this machine",
                    path.display()
                ))
            })
        };
        paths.iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// `sorts` is a list of `{"name", "pairs", "pairs_per_second"}`.
    pub(super) fn pairs_per_second(&self, name: &str, pairs: u32) -> Option<f64> {
        let sorts = self.0.iter().filter_map(|value| value["sorts"].as_array()).flatten();
        let mut found = sorts.filter(|sort| sort["name"] == name && sort["pairs"] == pairs);
        found.find_map(|sort| sort["pairs_per_second"].as_f64())
    }
}

/// What all parts share.
pub(super) struct Bench<'a> {
    pub(super) lab: &'a Lab,
    pub(super) size: Size,
    pub(super) seed: u32,
    pub(super) deadline: Deadline,
    /// Bytes a second of the best copy within device memory, and from mapped host memory.
    pub(super) copy: Option<f64>,
    pub(super) bus: Option<f64>,
    pub(super) beside: Beside,
    pub(super) run: Run,
}

impl Bench<'_> {
    /// Tables in device memory, sums of bags, the seed of the run.
    pub(super) fn config(
        &self,
        tables: &[u32],
        precision: Precision,
        optimizer: Optimizer,
        cache_rows: u32,
    ) -> GroupConfig {
        let mut config = GroupConfig::new(tables, DIM);
        (config.precision, config.optimizer, config.cache_rows) = (precision, optimizer, cache_rows);
        (config.seed, config.pooling) = (self.seed, Pooling::Sum);
        config.init = Init::Uniform { low: -0.1, high: 0.1 };
        config
    }

    /// Indices, and bytes of slots: the goal's.
    pub(super) fn resident(&self) -> (usize, u64) {
        self.size.of((4096, 8 << 20), (1 << 20, 4 << 30))
    }

    /// Slots of a cache of `bytes`, or of as many as the device binds in all its windows. A window that a handful of slots would need is
    /// done without: a binding may fall short of a round number.
    pub(super) fn slots(&self, bytes: u64, slot_bytes: u64) -> u32 {
        let (wanted, window) = (bytes / slot_bytes, self.lab.binding() / slot_bytes);
        let beyond = wanted % window;
        let wanted = if beyond < wanted / 1000 { wanted - beyond } else { wanted };
        wanted.min(window * u64::from(self.lab.timed.caps().choose_windows())) as u32 & !31
    }

    /// Where the cache is compared with itself: half the goal's size, and half the time to make the tables.
    pub(super) fn one_binding(&self) -> u64 {
        self.resident().1.min(self.lab.binding())
    }
}
