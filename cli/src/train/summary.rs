//! The runs of each setup over their seeds, against FP32 with the same seeds.

use super::charts::LINE;
use super::interval::{Interval, drop, loss_change};
use super::journal::Record;
use super::outcome::Outcome;
use super::setting::Setup;
use crate::names::{self, option_name};
use crate::report::{self, Record as Figure, Unit};

/// The runs of a setup.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) setup: Setup,
    /// Runs that came to an end, each with its seed.
    pub(crate) runs: Vec<(u64, Outcome)>,
    /// Runs that did not.
    pub(crate) failed: usize,
    /// FP32's run with the seed of each of `runs`, where there is one; empty for FP32 itself.
    fp32: Vec<Option<Outcome>>,
}

/// A value of a run, if it has it.
pub(crate) type Value = fn(&Outcome) -> Option<f64>;

impl Cell {
    pub(crate) fn mean(&self, of: impl Fn(&Outcome) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> = self.runs.iter().filter_map(|(_, run)| of(run)).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }

    /// The mean with its interval over the seeds.
    pub(crate) fn interval(&self, of: Value) -> Option<Interval> {
        Interval::of(&self.runs.iter().filter_map(|(_, run)| of(run)).collect::<Vec<_>>())
    }

    /// By how many percent the test log-loss is above FP32's, paired by seed (Yang 2020, eq. 1). None for FP32 itself.
    pub(crate) fn loss_change(&self) -> Option<Interval> {
        Interval::of(&self.changes().into_iter().map(|(_, change)| change).collect::<Vec<_>>())
    }

    /// Seed, and by how many percent its loss is above FP32's.
    pub(crate) fn changes(&self) -> Vec<(u64, f64)> {
        self.paired(loss_change, |run| Some(run.loss))
    }

    pub(crate) fn accuracy_drop(&self) -> Option<Interval> {
        Interval::of(&self.paired(drop, |run| run.accuracy).into_iter().map(|(_, drop)| drop).collect::<Vec<_>>())
    }

    pub(crate) fn auc_drop(&self) -> Option<Interval> {
        Interval::of(&self.paired(drop, |run| run.auc).into_iter().map(|(_, drop)| drop).collect::<Vec<_>>())
    }

    fn paired(&self, change: fn(f64, f64) -> f64, of: Value) -> Vec<(u64, f64)> {
        let pairs = self.runs.iter().zip(&self.fp32);
        pairs.filter_map(|((seed, run), fp32)| Some((*seed, change(of(run)?, of(fp32.as_ref()?)?)))).collect()
    }
}

/// The setups in the order of their first records, each compared with FP32.
pub(crate) fn cells(records: &[Record]) -> Vec<Cell> {
    let fp32 = |of: &Record| {
        let base = Setup { batch: of.setup.batch, ..Setup::FP32 };
        let same = records.iter().find(|record| record.seed == of.seed && record.setup == base);
        same.and_then(|record| record.outcome.clone()).filter(|_| of.setup != base)
    };
    let mut cells: Vec<Cell> = Vec::new();
    for record in records {
        let at = cells.iter().position(|cell| cell.setup == record.setup).unwrap_or_else(|| {
            let setup = record.setup.clone();
            cells.push(Cell { setup, runs: Vec::new(), failed: 0, fp32: Vec::new() });
            cells.len() - 1
        });
        match &record.outcome {
            Some(outcome) => {
                cells[at].runs.push((record.seed, outcome.clone()));
                cells[at].fp32.push(fp32(record));
            }
            None => cells[at].failed += 1,
        }
    }
    cells
}

/// The figures of a run that are shown.
const FIGURES: [(&str, Unit, Value); 11] = [
    ("test loss", Unit::Score, |run| Some(run.loss)),
    ("accuracy", Unit::Score, |run| run.accuracy),
    ("AUC", Unit::Score, |run| run.auc),
    ("hit rate", Unit::Share, |run| run.hit_rate),
    ("memory by formula", Unit::Times, |run| Some(run.memory_paper)),
    ("memory", Unit::Times, |run| Some(run.memory_true)),
    ("bytes moved", Unit::Bytes, |run| Some(run.bus_bytes as f64)),
    ("samples a second", Unit::PerSecond, |run| Some(run.samples_per_second)),
    ("steps", Unit::Count, |run| Some(run.steps as f64)),
    ("run", Unit::Seconds, |run| Some(run.seconds)),
    ("training loss", Unit::Score, |run| Some(run.train_loss)),
];

/// By how many percent the test log-loss is above FP32's.
pub(crate) const LOSS_CHANGE: &str = "test loss change";

/// By how many percent accuracy, or AUC, is below FP32's.
pub(crate) const DROPS: [&str; 2] = ["accuracy drop", "AUC drop"];

/// Figures and changes of each cell: means over the seeds, with their intervals.
pub(crate) fn records(task: &str, cells: &[Cell]) -> Vec<Figure> {
    let mut records = Vec::new();
    for cell in cells {
        let setting = setting(cell);
        let mut push = |what: &str, unit, found: Option<Interval>| {
            records.extend(found.map(|found| found.record(what, task, &setting, unit)));
        };
        for (what, unit, of) in FIGURES {
            push(what, unit, cell.interval(of));
        }
        push(LOSS_CHANGE, Unit::Change, cell.loss_change());
        push(DROPS[0], Unit::Change, cell.accuracy_drop());
        push(DROPS[1], Unit::Change, cell.auc_drop());
    }
    records
}

/// Figures of one setting: those that there are.
pub(crate) fn figures<'a>(
    shape: &'a str,
    setting: &'a report::Setting,
    found: impl IntoIterator<Item = (&'a str, Option<f64>, Unit)> + 'a,
) -> impl Iterator<Item = Figure> + 'a {
    found.into_iter().filter_map(move |(what, value, unit)| Some(Figure::new(what, shape, setting, value?, unit)))
}

/// The names and values of a setup.
fn setting(cell: &Cell) -> report::Setting {
    let setup = &cell.setup;
    let mut found = report::Setting::default().with("tables", setup.label());
    if let Some(rows) = setup.rows() {
        let (precision, rounding) = (option_name(&rows.precision), option_name(&rows.rounding));
        found = found.with(LINE, format!("{precision} {rounding}"));
        found = found.with("precision", precision).with("rounding", rounding);
        found = found.with("cache", rows.cache_name()).with(SIZE, rows.cache_percent);
        if rows.has_cache() {
            found = found.with("policy", names::title(rows.policy)).with("ways", rows.ways);
        }
    }
    if let Some(memory) = cell.mean(|run| Some(run.memory_paper)) {
        found = found.with("memory", memory);
    }
    match setup.batch {
        Some(batch) => found.with("batch", batch as f64).with(LINE, setup.label()),
        None => found,
    }
}

/// The cache's size.
pub(crate) const SIZE: &str = "cache % of rows";
