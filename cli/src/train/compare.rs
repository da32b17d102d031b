//! Settings side by side over seeds: the table of `hotrow train`. With several batch sizes, these side by side: what a larger batch
//! costs in accuracy and gains in time, after as many epochs or as many seconds (SCARS, Table VII).

use super::checkpoints::{self, Keep};
use super::conflicts::{self, Beside};
use super::interval::Interval;
use super::journal::{self, Run};
use super::options::CompareArgs;
use super::outcome::Outcome;
use super::setting::{Kind, Setting, Setup, WAYS};
use super::summary::{self, Cell, Value};
use super::tables;
use super::task::TableSpec;
use super::training::Training;
use super::{cells::Lists, charts, mixed::TableSetting};
use crate::failure::Failure;
use crate::names::{PrecisionName, RoundingName, option_name};
use crate::options::Options;
use crate::output;
use crate::report::{self, Record};
use serde::Serialize;
use std::path::Path;

/// A setup over its seeds: the schema of `--json`.
#[derive(Debug, Serialize)]
struct Compared<'a> {
    task: &'a str,
    data: &'a str,
    /// Samples in a batch, where several sizes are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    batch: Option<usize>,
    setting: String,
    /// Of each table.
    tables: Vec<OfTable<'a>>,
    /// Mean over the runs, in nats.
    loss: Option<f64>,
    /// In percent of FP32's, paired by seed (Yang 2020, eq. 1); none for FP32 itself.
    loss_change: Option<Interval>,
    runs: Vec<Seeded<'a>>,
}

#[derive(Debug, Serialize)]
struct OfTable<'a> {
    name: &'a str,
    rows: u32,
    dim: u32,
    #[serde(flatten)]
    setting: Kind,
}

#[derive(Debug, Serialize)]
struct Seeded<'a> {
    seed: u64,
    #[serde(flatten)]
    outcome: &'a Outcome,
}

/// Trains what was asked for, or what makes the point, and prints it.
pub(super) fn run(options: &Options, args: &CompareArgs) -> Result<(), Failure> {
    conflicts::check(options, &args.run, &Beside::Compare(args))?;
    let mut training = Training::open(options, &args.run, args.batch.first().copied())?;
    training.options.seconds = args.seconds;
    let several = args.batch.len() > 1;
    let setups = if several { sized(args) } else { setups(&args.lists, &args.table, &training)? };
    let runs = journal::each(&setups, &training.seeds);
    let folder = args.resume.as_deref().or(args.out.as_deref()).filter(|_| !several).map(|out| out.join("checkpoints"));
    let keep = |setup: &Setup, seed| Keep {
        folder: folder.as_ref().map(|folder| folder.join(run_name(&setup.label(), seed))).unwrap_or_default(),
        every: args.checkpoint_every,
        resume: args.resume.is_some(),
    };
    if let Some(resume) = &args.resume {
        any_checkpoint(&runs, &keep, resume)?;
    }
    if let Some(out) = &args.out {
        output::check_folder("--out", out)?;
    }
    if args.run.task.task.is_none() {
        output::note(&format!("no --task: {}", training.task.about().source));
    }
    let cells = summary::cells(&training.run_all(&runs, &keep)?);
    if several {
        return show_sizes(options, args, &training, &cells);
    }
    output::print(&heading(&training))?;
    output::print(&table(&cells).to_string())?;
    for note in notes(&training, &cells) {
        output::print(&note)?;
    }
    // Last: what was trained is on the screen by then, wherever this cannot be written.
    if let Some(path) = &options.json {
        let compared = cells.iter().map(|cell| compared(&training, cell)).collect::<Result<Vec<_>, _>>()?;
        output::write_json(path, &compared)?;
    }
    Ok(())
}

/// The settings that are trained by default show the papers' point. Nearest rounding loses, stochastic rounding less, a small cache of hot rows
/// gives back the rest, in a fraction of the memory.
fn telling() -> Vec<Setting> {
    use PrecisionName::{Fp16, Int2, Int4, Int8};
    use RoundingName::{Nearest, Stochastic};
    vec![
        Setting::FP32,
        Setting::uncached(Fp16, Nearest),
        Setting::uncached(Fp16, Stochastic),
        Setting::uncached(Int8, Nearest),
        Setting::uncached(Int8, Stochastic),
        Setting::lfu(Int8, 5.0, WAYS),
        Setting::uncached(Int4, Nearest),
        Setting::uncached(Int4, Stochastic),
        Setting::lfu(Int4, 10.0, WAYS),
        Setting::uncached(Int2, Stochastic),
        Setting::lfu(Int2, 10.0, WAYS),
        Setting::lfu(Int2, 30.0, WAYS),
    ]
}

/// Every setup that was asked for, or those that make the point; first plain FP32, which the others are compared with.
pub(super) fn setups(lists: &Lists, tables: &[TableSetting], training: &Training) -> Result<Vec<Setup>, Failure> {
    let named = tables.iter().filter_map(|setting| Some((setting.table.clone()?, setting.kind)));
    let named: Vec<(String, Kind)> = named.collect();
    let mut kinds: Vec<Kind> = lists.settings().into_iter().map(Kind::from).collect();
    for asked in tables.iter().filter(|setting| setting.table.is_none()) {
        if kinds.is_empty() {
            kinds.push(Kind::FP32);
        }
        if !kinds.contains(&asked.kind) {
            kinds.push(asked.kind);
        }
    }
    if kinds.is_empty() && named.is_empty() {
        kinds = telling().into_iter().map(Kind::from).collect();
    } else if !named.is_empty() && kinds.len() < 2 {
        // With a table's own setting those that are not named stay.
        kinds = vec![Kind::FP32; 2];
    }
    let mut setups: Vec<Setup> =
        kinds.into_iter().map(|setting| Setup { setting, named: named.clone(), ..Setup::FP32 }).collect();
    if let Some(first) = setups.first_mut() {
        first.named = Vec::new();
    }
    setups.iter().try_for_each(|setup| check(setup, training))?;
    Ok(setups)
}

/// Refuses a setup that cannot be, or that would be FP32 alone; before anything is trained.
fn check(setup: &Setup, training: &Training) -> Result<(), Failure> {
    let choice = training.choice(setup)?;
    let label = setup.label();
    if setup.setting.is_smaller() && !choice.settings.iter().any(Kind::is_smaller) {
        return Err(Failure::Usage(format!(
            "{label}: wanted a table of more than 1,000 rows to keep so, found none (smaller ones stay FP32); \
             take larger tables, or name one with --table"
        )));
    }
    tables::check(training.tables(), &choice, training.options.rule)
        .map_err(|error| Failure::Usage(format!("{label}: {error}")))
}

/// Every setting with every batch size.
fn sized(args: &CompareArgs) -> Vec<Setup> {
    let mut sizes = args.batch.clone();
    sizes.sort_unstable();
    sizes.dedup();
    let settings = args.lists.settings();
    let settings = if settings.is_empty() { vec![Setting::FP32] } else { settings };
    let with = |setting, batch| Setup { batch: Some(batch as usize), ..Setup::from(setting) };
    settings.into_iter().flat_map(|setting| sizes.iter().map(move |&batch| with(setting, batch))).collect()
}

/// A folder's name for a run: letters, digits, points and dashes of its label.
fn run_name(label: &str, seed: u64) -> String {
    let parts = label.split(|c: char| !(c.is_ascii_alphanumeric() || c == '.')).filter(|part| !part.is_empty());
    parts.chain([format!("seed{seed}").as_str()]).collect::<Vec<_>>().join("-")
}

/// Refuses `--resume` without a checkpoint of any of the runs.
fn any_checkpoint(runs: &[Run], keep: &dyn Fn(&Setup, u64) -> Keep, resume: &Path) -> Result<(), Failure> {
    for (setup, seed) in runs {
        if checkpoints::newest(&keep(setup, *seed).folder)?.is_some() {
            return Ok(());
        }
    }
    Err(Failure::Usage(format!(
        "--resume: wanted checkpoints of these settings and seeds in {}, found none; give the folder that --out \
         named, and the same options",
        resume.display()
    )))
}

fn compared<'a>(training: &'a Training, cell: &'a Cell) -> Result<Compared<'a>, Failure> {
    let about = training.task.about();
    let tables = about.tables.iter().zip(training.choice(&cell.setup)?.settings);
    let of = |(table, setting): (&'a TableSpec, Kind)| OfTable {
        name: &table.name,
        rows: table.rows,
        dim: table.dim,
        setting,
    };
    Ok(Compared {
        task: about.name,
        data: &about.source,
        batch: cell.setup.batch,
        setting: cell.setup.label(),
        tables: tables.map(of).collect(),
        loss: cell.mean(|run| Some(run.loss)),
        loss_change: cell.loss_change(),
        runs: cell.runs.iter().map(|(seed, outcome)| Seeded { seed: *seed, outcome }).collect(),
    })
}

fn counted(count: usize, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}

/// The data, the options of the training, and the meaning of the columns.
fn heading(training: &Training) -> String {
    let options = &training.options;
    let decay = if options.decay { ", both going down to 0" } else { "" };
    format!(
        "{}\n{}{} of {} samples a batch, {} at {}, dense part adagrad at {}{decay}; {}\n\
         change: of the test loss against FP32 of the same seed, with its 95 % interval over the seeds\n\
         memory: of the tables against FP32 weights, by the papers' formula, and with the optimiser's state and all else that stays\n\
         moved: to and from the tables' memory in training; of robe at most, as if no chunks overlapped\n",
        training.task.about().source,
        training.small(),
        counted(options.epochs as usize, "epoch"),
        options.batch,
        option_name(&options.rule.optimizer),
        options.rule.lr,
        options.dense_lr,
        counted(training.seeds.len(), "seed"),
    )
}

/// A column of the table: its head, and its text for a cell.
type Column = (&'static str, fn(&Cell) -> String);

const COLUMNS: [Column; 10] = [
    ("tables", |cell| cell.setup.label()),
    ("test loss", |cell| number(cell.mean(|run| Some(run.loss)), 5)),
    ("change %", |cell| cell.loss_change().map_or_else(String::new, |change| change.show(""))),
    ("accuracy %", |cell| number(cell.mean(|run| run.accuracy).map(|share| 100.0 * share), 2)),
    ("AUC", |cell| number(cell.mean(|run| run.auc), 4)),
    ("hit rate %", |cell| number(cell.mean(|run| run.hit_rate).map(|share| 100.0 * share), 1)),
    ("memory", |cell| number(cell.mean(|run| Some(run.memory_paper)), 3)),
    ("all", |cell| number(cell.mean(|run| Some(run.memory_true)), 3)),
    ("moved MB", |cell| number(cell.mean(|run| Some(run.bus_bytes as f64)).map(|bytes| bytes / 1e6), 1)),
    ("samples/s", |cell| number(cell.mean(|run| Some(run.samples_per_second)), 0)),
];

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(String::new, |value| format!("{value:.digits$}"))
}

fn table(cells: &[Cell]) -> comfy_table::Table {
    let has = |of: Value| cells.iter().any(|cell| cell.mean(of).is_some());
    let shown: Vec<Column> = COLUMNS
        .into_iter()
        .filter(|(head, _)| match *head {
            "accuracy %" => has(|run| run.accuracy),
            "AUC" => has(|run| run.auc),
            _ => true,
        })
        .collect();
    let mut table = output::table(shown.iter().map(|(head, _)| *head), 1);
    for cell in cells {
        table.add_row(shown.iter().map(|(_, text)| text(cell)));
    }
    table
}

/// Updates and steps that were left out; and how near FP32 comes to the best loss, where that is known.
fn notes(training: &Training, cells: &[Cell]) -> Vec<String> {
    let mut notes = Vec::new();
    for cell in cells {
        let label = cell.setup.label();
        let sum = |of: fn(&Outcome) -> u64| cell.runs.iter().map(|(_, run)| of(run)).sum::<u64>();
        let (skipped, overflows) = (sum(|run| run.skipped_rows), sum(|run| run.overflows.unwrap_or(0)));
        if skipped > 0 {
            notes.push(format!(
                "{label}: {skipped} updates of rows, or of shared weights, were not finite and left out: do not trust its loss; lower --lr"
            ));
        }
        if overflows > 0 {
            notes.push(format!("{label}: {overflows} steps overflowed and were left out"));
        }
    }
    let fp32 = cells.first().and_then(|cell| cell.mean(|run| Some(run.loss)));
    if let Some(([blind, best], loss)) = training.task.about().bounds.zip(fp32) {
        let share = 100.0 * (blind - loss) / (blind - best);
        notes.push(format!(
            "fp32 comes to {loss:.4}: {share:.0} % of the way from the base rate's {blind:.4} to the best reachable {best:.4}"
        ));
    }
    notes
}

/// The figures that are shown of a batch size.
const OF_SIZES: [&str; 6] = ["steps", "samples a second", "test loss", "accuracy", "AUC", "bytes moved"];

/// The table, records and chart of several batch sizes.
fn show_sizes(options: &Options, args: &CompareArgs, training: &Training, cells: &[Cell]) -> Result<(), Failure> {
    let about = training.task.about();
    let seeds = training.seeds.len();
    let budget = match args.seconds {
        Some(seconds) => format!("{seconds} s of training a run, on one core beside others: it depends on the machine"),
        None => counted(training.options.epochs as usize, "epoch"),
    };
    let records = summary::records(about.name, cells);
    let shown: Vec<&Record> = records.iter().filter(|record| OF_SIZES.contains(&record.what.as_str())).collect();
    let table = report::table(shown.iter().copied(), &["tables", "batch"], "what").unwrap_or_default();
    output::print(&format!(
        "{}\n{budget}; the same rates for every batch size; means of {seeds} seeds, ±: their 95 % interval\n\n{table}",
        about.source
    ))?;
    if let Some(folder) = &args.out {
        let what = if records.iter().any(|record| record.what == "accuracy") { "accuracy" } else { "AUC" };
        let scores: Vec<Record> = records.iter().filter(|record| record.what == what).cloned().collect();
        let mut chart = charts::places(&scores, "batch", 1);
        chart.title = format!("{}: batch size", about.name);
        (chart.x_label, chart.y_label) = ("Samples in a batch".to_owned(), format!("Test {what}"));
        let written = chart.write(&folder.join("batches"))?;
        output::note(&format!("pictures: {} and {}", written[0].display(), written[1].display()));
    }
    if let Some(path) = &options.json {
        let cells = cells.iter().map(|cell| compared(training, cell)).collect::<Result<Vec<_>, _>>()?;
        let epochs = args.seconds.is_none().then_some(training.options.epochs);
        let sizes = serde_json::json!({ "schema": 2, "epochs": epochs, "seconds": args.seconds, "cells": cells });
        output::write_json(path, &sizes)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_have_folders_of_their_own() {
        assert_eq!(run_name("int4 stochastic, 0.1 % lfu", 3), "int4-stochastic-0.1-lfu-seed3");
        assert_eq!(run_name("fp32; C3=int4 stochastic", 0), "fp32-C3-int4-stochastic-seed0");
        let names: Vec<String> = telling().iter().map(|setting| run_name(&setting.label(), 0)).collect();
        let distinct: std::collections::HashSet<&String> = names.iter().collect();
        assert_eq!(distinct.len(), names.len(), "{names:?}");
    }
}
