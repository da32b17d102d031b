//! The state that all parts share: the device, the size, the run that they fill, and the configuration of their tables.

use hotrow::{GroupConfig, Init, Optimizer, Placement, Pooling, Precision};
use std::path::PathBuf;

use super::model::Machine;
use super::size::Size;
use crate::failure::Failure;
use crate::lab::{Deadline, Lab};
use crate::report::run::Run;

/// The floats of a row in TBE's and NVIDIA's benchmarks.
pub(super) const DIM: u32 = 128;

/// Figures of other libraries on the same machine.
#[derive(Debug, Default)]
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

    /// Reads `sorts`, a list of `{"name", "pairs", "pairs_per_second"}`.
    pub(super) fn pairs_per_second(&self, name: &str, pairs: u32) -> Option<f64> {
        let sorts = self.0.iter().filter_map(|value| value["sorts"].as_array()).flatten();
        let mut found = sorts.filter(|sort| sort["name"] == name && sort["pairs"] == pairs);
        found.find_map(|sort| sort["pairs_per_second"].as_f64())
    }
}

/// Whether the device maps memory.
pub(super) fn is_mapped(lab: &Lab) -> bool {
    lab.timed.caps().mappable
}

/// The state that all parts share.
pub(super) struct Bench<'a> {
    /// The device; `None` where `machine` predicts.
    pub(super) lab: Option<&'a Lab>,
    pub(super) machine: Option<Machine>,
    pub(super) size: Size,
    pub(super) seed: u32,
    pub(super) deadline: Deadline,
    /// Bytes a second of the best copy: within device memory, and from mapped host memory.
    pub(super) copy: Option<f64>,
    pub(super) bus: Option<f64>,
    pub(super) beside: Beside,
    pub(super) run: Run,
}

impl<'a> Bench<'a> {
    /// The device of a part that cannot be predicted.
    pub(super) fn lab(&self) -> anyhow::Result<&'a Lab> {
        self.lab.ok_or_else(|| anyhow::anyhow!("not predicted: it needs a device"))
    }

    fn number(&self, name: &str, of: impl Fn(&Lab) -> u64) -> u64 {
        self.lab.map(of).or(self.machine.as_ref().map(|machine| machine.number(name) as u64)).unwrap_or_default()
    }

    /// The most bytes of one binding.
    pub(super) fn binding(&self) -> u64 {
        self.number("binding", Lab::binding)
    }

    /// Mapped if the device maps memory, else Device. The setting names the placement, and goals ask for mapped.
    pub(super) fn mapped(&self) -> Placement {
        if self.lab.is_none_or(is_mapped) { Placement::Mapped } else { Placement::Device }
    }

    /// Tables in device memory with sum pooling and the seed of the run.
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

    /// The goal's number of indices and bytes of slots.
    pub(super) fn resident(&self) -> (usize, u64) {
        self.size.of((4096, 8 << 20), (1 << 20, 4 << 30))
    }

    /// Slots of a cache of `bytes`, at most those that all windows of the device bind. The size is rounded down if the last window would
    /// hold only a few slots, since bindings may be slightly smaller than a round number.
    pub(super) fn slots(&self, bytes: u64, slot_bytes: u64) -> u32 {
        let (wanted, window) = (bytes / slot_bytes, self.binding() / slot_bytes);
        let beyond = wanted % window;
        let wanted = if beyond < wanted / 1000 { wanted - beyond } else { wanted };
        wanted.min(window * (self.number("windows", |lab| lab.timed.caps().choose_windows().into()))) as u32 & !31
    }

    /// The cache size of comparisons between caches: one binding, half the goal's size, so that tables are made in half the time.
    pub(super) fn one_binding(&self) -> u64 {
        self.resident().1.min(self.binding())
    }
}
