//! The runs of each cell over their seeds, against FP32 of the same seeds.

use super::interval::{Interval, drop, loss_change};
use super::outcome::Outcome;
use super::record::Record;
use super::setting::Setting;
use crate::names::{PolicyName, PrecisionName, RoundingName};
use serde::Serialize;

/// A cell of the grid over its seeds. Means are over the runs that came to an end.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Cell {
    pub(crate) setting: Setting,
    /// Runs that came to an end.
    pub(crate) runs: usize,
    /// Runs that did not.
    pub(crate) failed: usize,
    /// Mean test log-loss, in nats.
    pub(crate) loss: Option<f64>,
    /// By how many percent it is above FP32's, paired by seed (P1 eq. 1). None for FP32 itself.
    pub(crate) loss_change: Option<Interval>,
    pub(crate) accuracy: Option<f64>,
    /// By how many percent it is below FP32's, paired by seed (P1 eq. 1).
    pub(crate) accuracy_drop: Option<Interval>,
    pub(crate) auc: Option<f64>,
    pub(crate) auc_drop: Option<Interval>,
    pub(crate) hit_rate: Option<f64>,
    pub(crate) memory_paper: Option<f64>,
    pub(crate) memory_true: Option<f64>,
    pub(crate) bus_bytes: Option<f64>,
    pub(crate) samples_per_second: Option<f64>,
    pub(crate) steps: Option<f64>,
    pub(crate) seconds: Option<f64>,
    pub(crate) train_loss: Option<f64>,
    /// Seed, and by how many percent its loss is above FP32's.
    #[serde(skip)]
    pub(crate) changes: Vec<(u64, f64)>,
}

/// One cell a row: the schema of the CSV file.
#[derive(Debug, Serialize)]
pub(crate) struct Row<'a> {
    task: &'a str,
    precision: PrecisionName,
    rounding: RoundingName,
    /// Empty without a cache.
    policy: Option<PolicyName>,
    cache_percent: f64,
    ways: Option<u32>,
    runs: usize,
    failed: usize,
    loss: Option<f64>,
    loss_change_percent: Option<f64>,
    loss_change_low: Option<f64>,
    loss_change_high: Option<f64>,
    accuracy: Option<f64>,
    accuracy_drop_percent: Option<f64>,
    accuracy_drop_low: Option<f64>,
    accuracy_drop_high: Option<f64>,
    auc: Option<f64>,
    auc_drop_percent: Option<f64>,
    auc_drop_low: Option<f64>,
    auc_drop_high: Option<f64>,
    hit_rate: Option<f64>,
    memory_paper: Option<f64>,
    memory_true: Option<f64>,
    bus_bytes: Option<f64>,
    samples_per_second: Option<f64>,
    steps: Option<f64>,
    seconds: Option<f64>,
    train_loss: Option<f64>,
}

impl Cell {
    pub(crate) fn row<'a>(&self, task: &'a str) -> Row<'a> {
        let setting = self.setting;
        let mean = |of: Option<Interval>| of.map(|of| of.mean);
        let ends = |of: Option<Interval>| (of.and_then(|of| of.low), of.and_then(|of| of.high));
        let (loss, accuracy, auc) = (ends(self.loss_change), ends(self.accuracy_drop), ends(self.auc_drop));
        Row {
            task,
            precision: setting.precision,
            rounding: setting.rounding,
            policy: setting.has_cache().then_some(setting.policy),
            cache_percent: setting.cache_percent,
            ways: setting.has_cache().then_some(setting.ways),
            runs: self.runs,
            failed: self.failed,
            loss: self.loss,
            loss_change_percent: mean(self.loss_change),
            loss_change_low: loss.0,
            loss_change_high: loss.1,
            accuracy: self.accuracy,
            accuracy_drop_percent: mean(self.accuracy_drop),
            accuracy_drop_low: accuracy.0,
            accuracy_drop_high: accuracy.1,
            auc: self.auc,
            auc_drop_percent: mean(self.auc_drop),
            auc_drop_low: auc.0,
            auc_drop_high: auc.1,
            hit_rate: self.hit_rate,
            memory_paper: self.memory_paper,
            memory_true: self.memory_true,
            bus_bytes: self.bus_bytes,
            samples_per_second: self.samples_per_second,
            steps: self.steps,
            seconds: self.seconds,
            train_loss: self.train_loss,
        }
    }

    /// Accuracy, or AUC where the task has no accuracy; how far it is below FP32's.
    pub(crate) fn score_drop(&self) -> Option<Interval> {
        self.accuracy_drop.or(self.auc_drop)
    }
}

/// The cells in a fixed order, whichever run ended first.
pub(crate) fn cells(records: &[Record]) -> Vec<Cell> {
    // Sums are taken in the order of the seeds, so that the last bit is fixed too.
    let mut records: Vec<&Record> = records.iter().collect();
    records.sort_by(|a, b| a.setting.cmp_place(&b.setting).then(a.seed.cmp(&b.seed)));
    let mut settings: Vec<Setting> = records.iter().map(|record| record.setting).collect();
    settings.dedup();
    settings.into_iter().map(|setting| cell(setting, &records)).collect()
}

fn cell(setting: Setting, records: &[&Record]) -> Cell {
    let of = |setting: Setting| records.iter().filter(move |record| record.setting == setting);
    let runs: Vec<(u64, &Outcome)> =
        of(setting).filter_map(|record| Some((record.seed, record.outcome.as_ref()?))).collect();
    let mean = |values: &mut dyn Iterator<Item = f64>| {
        let values: Vec<f64> = values.collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let each = |value: fn(&Outcome) -> f64| mean(&mut runs.iter().map(|(_, run)| value(run)));
    let some = |value: fn(&Outcome) -> Option<f64>| mean(&mut runs.iter().filter_map(|(_, run)| value(run)));
    // Seed by seed against FP32; FP32 against itself says nothing.
    let paired = |change: fn(f64, f64) -> f64, value: fn(&Outcome) -> Option<f64>| -> Vec<(u64, f64)> {
        if setting == Setting::FP32 {
            return Vec::new();
        }
        let pair = |(seed, run): &(u64, &Outcome)| {
            let fp32 = of(Setting::FP32).find(|record| record.seed == *seed)?.outcome.as_ref()?;
            Some((*seed, change(value(run)?, value(fp32)?)))
        };
        runs.iter().filter_map(pair).collect()
    };
    let interval = |pairs: &[(u64, f64)]| Interval::of(&pairs.iter().map(|&(_, change)| change).collect::<Vec<f64>>());
    let changes = paired(loss_change, |run| Some(run.loss));
    Cell {
        setting,
        runs: runs.len(),
        failed: of(setting).filter(|record| record.outcome.is_none()).count(),
        loss: each(|run| run.loss),
        loss_change: interval(&changes),
        accuracy: some(|run| run.accuracy),
        accuracy_drop: interval(&paired(drop, |run| run.accuracy)),
        auc: some(|run| run.auc),
        auc_drop: interval(&paired(drop, |run| run.auc)),
        hit_rate: some(|run| run.hit_rate),
        memory_paper: each(|run| run.memory_paper),
        memory_true: each(|run| run.memory_true),
        bus_bytes: each(|run| run.bus_bytes as f64),
        samples_per_second: each(|run| run.samples_per_second),
        steps: each(|run| run.steps as f64),
        seconds: each(|run| run.seconds),
        train_loss: each(|run| run.train_loss),
        changes,
    }
}
