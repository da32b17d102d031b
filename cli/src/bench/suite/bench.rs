//! The state that all parts share: the device, the size, the run that they fill, and the configuration of their tables.

use clap::ValueEnum;
use hotrow::{GroupConfig, Init, OptimizerKind, Placement, Precision};
use std::path::PathBuf;
use std::time::Duration;

use hotrow_report::clock::{Clock, Deadline, Rounds};
use hotrow_report::failure::Failure;
use hotrow_report::run::Run;

/// The floats of a row in TBE's and NVIDIA's benchmarks.
pub(super) const DIM: u32 = 128;

/// The learning rate of all steps, and the largest of their gradients.
pub(super) const LR: f32 = 1e-3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Size {
    /// Small enough that a software driver finishes in two minutes
    Small,
    /// The shapes of the goals
    Full,
}

impl Size {
    /// Returns `small` or `full`.
    pub(crate) const fn of<T: Copy>(self, small: T, full: T) -> T {
        match self {
            Self::Small => small,
            Self::Full => full,
        }
    }

    /// The number of rounds: whole ones, ones whose stages are timed, and the time after which three whole ones are enough.
    pub(crate) fn rounds(self) -> Rounds {
        let (whole, detailed, seconds) = self.of((3, 1, 1), (15, 5, 3));
        Rounds { whole, detailed, slice: Duration::from_secs(seconds) }
    }
}

/// Reads figures of other libraries on the same machine.
pub(super) fn beside(paths: &[PathBuf]) -> Result<Vec<serde_json::Value>, Failure> {
    let read = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).map_err(|cause| cause.to_string());
        text.and_then(|text| serde_json::from_str(&text).map_err(|cause| cause.to_string())).map_err(|cause| {
            Failure::Usage(format!(
                "--beside: wanted JSON written by benches/side_by_side.py, found {}: {cause}; run that script on this machine",
                path.display()
            ))
        })
    };
    paths.iter().map(read).collect()
}

pub(super) struct Bench<'a> {
    pub(super) clock: &'a Clock,
    pub(super) size: Size,
    pub(super) seed: u32,
    pub(super) deadline: Deadline,
    /// Bytes a second of the best copy: within device memory, and from mapped host memory.
    pub(super) copy: Option<f64>,
    pub(super) bus: Option<f64>,
    /// Figures of other libraries on the same machine.
    pub(super) beside: Vec<serde_json::Value>,
    pub(super) run: Run,
}

impl Bench<'_> {
    /// Measures each setting, by its name. After one that fails the others are still measured.
    pub(super) fn each<T>(
        &mut self,
        settings: impl IntoIterator<Item = (String, T)>,
        mut one: impl FnMut(&mut Self, T) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        for (name, setting) in settings {
            self.clock.timeline.listen(false);
            let done = self.deadline.over().map_or_else(|| one(self, setting).map_err(|why| format!("{why:#}")), Err);
            done.unwrap_or_else(|reason| self.run.leave_out(name, reason));
            // The driver frees tables when the device is next polled.
            self.clock.submit(self.clock.encoder())?;
        }
        Ok(())
    }

    /// Refuses an array that is larger than a binding.
    pub(super) fn check_bound(&self, bytes: u64) -> anyhow::Result<()> {
        let binding = self.clock.binding();
        anyhow::ensure!(bytes <= binding, "beyond a binding of {} MiB", binding >> 20);
        Ok(())
    }

    pub(super) fn is_mapped(&self) -> bool {
        self.clock.timed.caps().mappable
    }

    /// Mapped if the device maps memory, else Device. The setting names the placement, and goals ask for mapped.
    pub(super) fn mapped(&self) -> Placement {
        if self.is_mapped() { Placement::Mapped } else { Placement::Device }
    }

    /// Tables in device memory with sum pooling and the seed of the run.
    pub(super) fn config(
        &self,
        tables: &[u32],
        precision: Precision,
        optimizer: OptimizerKind,
        cache_rows: u32,
    ) -> GroupConfig {
        let mut config = GroupConfig::new(tables, DIM);
        (config.precision, config.cache_rows, config.seed) = (precision, cache_rows, self.seed);
        config.optimizer = hotrow::Optimizer::usual(optimizer, LR);
        config.init = Init::Uniform { low: -0.1, high: 0.1 };
        config
    }

    /// The slots that were asked for, or as many as all windows of the device bind. The size is rounded down if the last window would
    /// hold only a few slots, since bindings may be slightly smaller than a round number.
    pub(super) fn slots(&self, wanted: u32, slot_bytes: u64) -> u32 {
        let (wanted, window) = (u64::from(wanted), self.clock.binding() / slot_bytes);
        let beyond = wanted % window;
        let wanted = if beyond < wanted / 1000 { wanted - beyond } else { wanted };
        wanted.min(window * u64::from(self.clock.timed.caps().choose_windows())) as u32 & !31
    }
}
