//! Pinned rows in the shape of P3's tables.

use serde::Serialize;

use super::super::lab::Times;
use super::super::report::{Case, bytes, percent, seconds, spread};
use crate::output;

/// What was measured of pinned rows.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Pinned {
    /// Tables, lookups, precision.
    pub(crate) shape: String,
    /// What P3's caches, batches and tables were divided by.
    pub(crate) divided_by: u32,
    pub(crate) steps: Vec<Step>,
    pub(crate) epochs: Vec<Epoch>,
    /// Of 1024 samples, those that use a row of the first quarter of the 512 MB cache, the second, the third, the last (P3 Figure 4).
    pub(crate) samples_by_quarter: [u32; 4],
}

/// Which samples a batch has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// As they come.
    Mixed,
    /// All rows pinned.
    Hot,
    /// Each with a row that is not.
    Normal,
    /// 95 % of the lookups pinned, whatever the cache.
    Even,
}

/// A mean step.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Step {
    pub(crate) kind: Kind,
    pub(crate) placement: String,
    /// P3's size of the cache in MB; 0: none.
    pub(crate) cache_mb: u32,
    /// Rows the cache has room for, FP32.
    pub(crate) cache_rows: u32,
    pub(crate) pinned_rows: usize,
    /// P3's batch.
    pub(crate) batch: u32,
    /// What was run.
    pub(crate) samples: usize,
    pub(crate) hit_rate: f64,
    pub(crate) distinct: f64,
    pub(crate) forward: Option<Times>,
    /// Sort and merge.
    pub(crate) backward_seconds: Option<f64>,
    /// Rows updated; `None` where stages are not timed.
    pub(crate) optimizer_seconds: Option<f64>,
    pub(crate) step_seconds: Option<f64>,
    /// Records read from and written to the table.
    pub(crate) bytes_in: f64,
    pub(crate) bytes_out: f64,
}

impl Step {
    /// Cut up as P3 does: the update is the optimiser's, the rest of our backward theirs.
    pub(super) fn of(case: &Case, kind: Kind, (cache_mb, cache_rows): (u32, u32), pinned_rows: usize) -> Self {
        let kernels = || case.kernels.iter().filter(|kernel| kernel.phase == "backward");
        let sum = |wanted: &dyn Fn(&str) -> bool| {
            let times = kernels().filter(|kernel| wanted(kernel.kernel)).map(|kernel| kernel.seconds);
            times.map(|times| Some(times?.median)).sum::<Option<f64>>()
        };
        // Stages are timed in rounds of their own: their shares of the phase count.
        let update = sum(&|kernel| kernel == "update").zip(sum(&|_| true)).map(|(update, all)| update / all);
        let whole = case.backward.map(|times| times.median);
        let optimizer_seconds = whole.zip(update).map(|(whole, share)| whole * share);
        Self {
            kind,
            placement: case.placement.clone(),
            cache_mb,
            cache_rows,
            pinned_rows,
            batch: 0,
            samples: 0,
            hit_rate: case.hit_rate,
            distinct: case.facts.distinct,
            forward: case.forward,
            backward_seconds: whole.map(|whole| whole - optimizer_seconds.unwrap_or(0.0)),
            optimizer_seconds,
            step_seconds: case.step_seconds(),
            bytes_in: case.forward_table_bytes,
            bytes_out: case.backward_table_bytes,
        }
    }
}

/// An epoch, out of how many batches of each kind it has and what one takes.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Epoch {
    pub(crate) batch: u32,
    pub(crate) samples: u64,
    pub(crate) hot_share: f64,
    pub(crate) hot_batches: u64,
    pub(crate) normal_batches: u64,
    pub(crate) uncached_seconds: Option<f64>,
    pub(crate) pinned_seconds: Option<f64>,
    pub(crate) uncached_bytes: f64,
    pub(crate) pinned_bytes: f64,
}

impl Pinned {
    pub(crate) fn tables(&self) -> String {
        let mut text = format!(
            "\nHot rows pinned, in the shape of P3's tables. {}. Caches, batches and rows are P3's divided by {}.\n",
            self.shape, self.divided_by
        );
        let parts = [
            ("batches as they come (P3 Tables I and II; IV without a cache)", Kind::Mixed),
            ("hot batches (P3 Table III)", Kind::Hot),
            ("normal batches (P3 Table III)", Kind::Normal),
            ("95 % of the lookups pinned in every cache", Kind::Even),
        ];
        for (name, kind) in parts {
            let mut table = output::table(
                [
                    "table in",
                    "cache",
                    "pinned rows",
                    "batch",
                    "hits",
                    "forward",
                    "backward",
                    "optimiser",
                    "total",
                    "in / out",
                ],
                1,
            );
            for step in self.steps.iter().filter(|step| step.kind == kind) {
                table.add_row([
                    step.placement.clone(),
                    if step.cache_mb == 0 { "none".to_owned() } else { format!("{} MB", step.cache_mb) },
                    step.pinned_rows.to_string(),
                    step.batch.to_string(),
                    percent(Some(step.hit_rate)),
                    spread(step.forward),
                    seconds(step.backward_seconds),
                    seconds(step.optimizer_seconds),
                    seconds(step.step_seconds),
                    format!("{} / {}", bytes(step.bytes_in), bytes(step.bytes_out)),
                ]);
            }
            text += &format!("\nSteps, {name}.\n\n{table}\n");
        }
        let head =
            ["batch", "hot / normal batches", "no cache", "256 MB pinned", "faster", "against smallest", "bytes saved"];
        let mut table = output::table(head, 0);
        let smallest = self.epochs.first().and_then(|epoch| epoch.pinned_seconds);
        let times = |a: Option<f64>, b: Option<f64>| {
            a.zip(b).map_or_else(|| "-".to_owned(), |(a, b)| format!("{:.2} x", a / b))
        };
        for epoch in &self.epochs {
            table.add_row([
                epoch.batch.to_string(),
                format!("{} / {}", epoch.hot_batches, epoch.normal_batches),
                seconds(epoch.uncached_seconds),
                seconds(epoch.pinned_seconds),
                times(epoch.uncached_seconds, epoch.pinned_seconds),
                times(smallest, epoch.pinned_seconds),
                percent(Some(1.0 - epoch.pinned_bytes / epoch.uncached_bytes)),
            ]);
        }
        if let Some(epoch) = self.epochs.first() {
            text += &format!(
                "\nAn epoch of {} samples, {} of them hot, out of the steps above (P3 Tables V and VI).\n\n{table}\n",
                epoch.samples,
                percent(Some(epoch.hot_share)),
            );
        }
        let [first, second, third, last] = self.samples_by_quarter;
        text += &format!(
            "\nOf 1024 samples {first}, {second}, {third} and {last} use a row of the 512 MB cache's first to last quarter (P3 Figure 4).\n"
        );
        text
    }
}
