//! Settings side by side over seeds: the table of `hotrow train`. Several batch sizes are compared too: the accuracy that a larger batch
//! costs and the time it saves, after equal epochs or equal seconds (SCARS, Table VII).

use super::asked::{Lists, TableSetting, telling};
use super::charts;
use super::checkpoints::{self, Keep};
use super::figures::{self, Cell, LOSS_CHANGE};
use super::journal::{self, Record, Run};
use super::options::CompareArgs;
use super::run::{End, Outcome};
use super::setting::{Kind, Setting, Setup};
use super::tables;
use super::training::Training;
use hotrow_cli::failure::Failure;
use hotrow_cli::options::Options;
use hotrow_cli::output;
use hotrow_cli::report;
use serde::Serialize;
use serde_json::{Value, json};
use std::path::Path;

/// Trains the settings of the options, or the default ones, and prints the comparison.
pub(super) fn run(options: &Options, args: &CompareArgs) -> Result<(), Failure> {
    args.check(options)?;
    let training = Training::open(options, &args.run, args.batch.first().copied(), None)?;
    let several = args.batch.len() > 1;
    let setups = if several { sized(args) } else { setups(&args.lists, &args.table, &training)? };
    let runs = journal::each(&setups, &training.seeds);
    let end = args.seconds.map_or(End::Epochs, End::Seconds);
    check_folders(options, args, &runs)?;
    if args.run.task.task.is_none() {
        output::note(&format!("no --task: {}", training.task.about().source));
    }
    show(options, args, &training, &training.run_all(&runs, &|setup, seed| (end, keep(args, setup, seed)))?)
}

/// Prints the comparison of runs, and writes it to `--json`.
pub(super) fn show(
    options: &Options,
    args: &CompareArgs,
    training: &Training,
    records: &[Record],
) -> Result<(), Failure> {
    let (cells, several) = (figures::cells(records), args.batch.len() > 1);
    let text = if several { sizes(args, training, &cells)? } else { settings(training, &cells) };
    output::print(&text)?;
    // Written last, so that the results are printed even if this fails.
    if let Some(path) = &options.json {
        let cells = cells.iter().map(|cell| compared(training, cell)).collect::<anyhow::Result<Vec<_>>>()?;
        let epochs = args.seconds.is_none().then_some(training.options.hyper.epochs);
        let sizes = || json!({ "schema": 2, "epochs": epochs, "seconds": args.seconds, "cells": cells });
        output::write_json(path, &if several { sizes() } else { json!(cells) })?;
    }
    Ok(())
}

/// The setups of the options, or the default ones. The first is plain FP32, which the others are compared with.
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
        // Tables without a setting of their own stay FP32.
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

/// Refuses an illegal setup, and one that is FP32 alone, before anything is trained.
fn check(setup: &Setup, training: &Training) -> Result<(), Failure> {
    let choice = setup.choice(training.tables()).map_err(Failure::Usage)?;
    let label = setup.label();
    if setup.setting.is_smaller() && !choice.settings.iter().any(Kind::is_smaller) {
        return Err(Failure::Usage(format!(
            "{label}: wanted a table of more than 1,000 rows to keep so, found none (smaller ones stay FP32); \
             take larger tables, or name one with --table"
        )));
    }
    tables::check(training.tables(), &choice, &training.options.hyper)
        .map_err(|error| Failure::Usage(format!("{label}: {error}")))
}

fn sized(args: &CompareArgs) -> Vec<Setup> {
    let mut sizes = args.batch.clone();
    sizes.sort_unstable();
    sizes.dedup();
    let settings = args.lists.settings();
    let settings = if settings.is_empty() { vec![Setting::FP32] } else { settings };
    let with = |setting, batch| Setup { batch: Some(batch as usize), ..Setup::from(setting) };
    settings.into_iter().flat_map(|setting| sizes.iter().map(move |&batch| with(setting, batch))).collect()
}

/// The folder name of a run: letters, digits, points and dashes of its label.
fn run_name(label: &str, seed: u64) -> String {
    let parts = label.split(|c: char| !(c.is_ascii_alphanumeric() || c == '.')).filter(|part| !part.is_empty());
    parts.chain([format!("seed{seed}").as_str()]).collect::<Vec<_>>().join("-")
}

/// The checkpoints of a run.
pub(super) fn keep(args: &CompareArgs, setup: &Setup, seed: u64) -> Keep {
    let folder = args.resume.as_deref().or(args.out.as_deref()).filter(|_| args.batch.len() < 2);
    let of_run = |folder: &Path| folder.join("checkpoints").join(run_name(&setup.label(), seed));
    Keep { folder: folder.map(of_run).unwrap_or_default(), every: args.checkpoint_every, resume: args.resume.is_some() }
}

/// Makes `--out`'s folder, and refuses `--resume` if no run has a checkpoint.
pub(super) fn check_folders(options: &Options, args: &CompareArgs, runs: &[Run]) -> Result<(), Failure> {
    if let Some(resume) = &args.resume {
        let mut found = false;
        for (setup, seed) in runs {
            found |= checkpoints::newest(&keep(args, setup, *seed).folder, None)?.is_some();
        }
        if !found {
            return Err(Failure::Usage(format!(
                "--resume: wanted checkpoints of these settings and seeds in {}, found none; give the folder that --out \
                 named, and the same options",
                resume.display()
            )));
        }
    }
    args.out.as_deref().map_or(Ok(()), |out| output::check_folder(out, options.json.as_deref()))
}

/// A setup over its seeds in the schema of `--json`. The loss is a mean in nats, its change a percentage of FP32's.
fn compared(training: &Training, cell: &Cell) -> anyhow::Result<Value> {
    let about = training.task.about();
    let kinds = cell.setup.choice(&about.tables).map_err(anyhow::Error::msg)?.settings;
    let tables = about.tables.iter().zip(kinds);
    let tables =
        tables.map(|(table, kind)| with(json!({"name": table.name, "rows": table.rows, "dim": table.dim}), &kind));
    let runs = cell.runs.iter().map(|run| with(json!({ "seed": run.seed }), &run.outcome));
    let found = json!({
        "task": about.name,
        "data": about.source,
        "setting": cell.setup.label(),
        "tables": tables.collect::<anyhow::Result<Vec<_>>>()?,
        "loss": cell.mean("test loss"),
        "loss_change": cell.figure(LOSS_CHANGE),
        "runs": runs.collect::<anyhow::Result<Vec<_>>>()?,
    });
    match cell.setup.batch {
        Some(batch) => with(found, &json!({ "batch": batch })),
        None => Ok(found),
    }
}

/// Adds the fields of another object.
fn with(mut value: Value, more: &impl Serialize) -> anyhow::Result<Value> {
    if let (Some(fields), Value::Object(more)) = (value.as_object_mut(), serde_json::to_value(more)?) {
        fields.extend(more);
    }
    Ok(value)
}

fn counted(count: usize, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}

/// A column of the table: its head, the figure, the factor of its unit, and its decimals.
type Column = (&'static str, &'static str, fn(f64) -> f64, usize);

const COLUMNS: [Column; 9] = [
    ("test loss", "test loss", |value| value, 5),
    ("change %", LOSS_CHANGE, |value| value, 3),
    ("accuracy %", "accuracy", |share| 100.0 * share, 2),
    ("AUC", "AUC", |value| value, 4),
    ("hit rate %", "hit rate", |share| 100.0 * share, 1),
    ("memory", "memory by formula", |value| value, 3),
    ("memory, all", "memory", |value| value, 3),
    ("moved MB", "bytes moved", |bytes| bytes / 1e6, 1),
    ("samples/s", "samples a second", |value| value, 0),
];

/// The text: the data, the training's options, the meaning of the columns, the table, and the updates and steps that were skipped. If the
/// best reachable loss is known, the distance of FP32 from it follows.
fn settings(training: &Training, cells: &[Cell]) -> String {
    let (about, hyper) = (training.task.about(), &training.options.hyper);
    let decay = if hyper.decay { ", both going down to 0" } else { "" };
    let state = hyper.state.map(|state| format!(", states in {state} below fp32")).unwrap_or_default();
    let mut text = format!(
        "{}\n{}{} of {} samples a batch, {} at {}{state}, dense part adagrad at {}{decay}; {}\n\
         change: of the test loss against FP32 of the same seed, with its 95 % interval over the seeds\n\
         memory: bytes of tables and cache over bytes of FP32 weights (formula of Yang 2020); all: the same with optimiser state and metadata\n\
         moved: bytes to and from the tables' memory in training; for shared arrays an upper bound that ignores overlapping chunks\n\n",
        about.source,
        training.small(),
        counted(hyper.epochs as usize, "epoch"),
        hyper.batch,
        hyper.optimizer,
        hyper.lr,
        hyper.dense_lr,
        counted(training.seeds.len(), "seed"),
    );
    let mut shown = COLUMNS.to_vec();
    shown.retain(|(_, what, ..)| {
        !["accuracy", "AUC"].contains(what) || cells.iter().any(|cell| cell.figure(what).is_some())
    });
    let mut table = output::table(["tables"].into_iter().chain(shown.iter().map(|column| column.0)), 1);
    for cell in cells {
        let figure = |&(_, what, in_unit, digits): &Column| match cell.figure(what) {
            Some(found) if what == LOSS_CHANGE => found.text(),
            Some(found) => format!("{:.digits$}", in_unit(found.mean)),
            None => String::new(),
        };
        table.add_row([cell.setup.label()].into_iter().chain(shown.iter().map(figure)));
    }
    text += &table.to_string();
    for cell in cells {
        let label = cell.setup.label();
        let sum = |of: fn(&Outcome) -> u64| cell.runs.iter().map(|run| of(&run.outcome)).sum::<u64>();
        let (skipped, overflows) = (sum(|run| run.skipped_rows), sum(|run| run.overflows.unwrap_or(0)));
        if skipped > 0 {
            text += &format!(
                "\n{label}: {skipped} updates of rows or shared weights were not finite and were skipped: do not trust its loss; lower --lr"
            );
        }
        if overflows > 0 {
            text += &format!("\n{label}: {overflows} steps overflowed and were skipped");
        }
    }
    let fp32 = cells.first().and_then(|cell| cell.mean("test loss"));
    if let Some(([blind, best], loss)) = about.bounds.zip(fp32) {
        let share = 100.0 * (blind - loss) / (blind - best);
        text += &format!(
            "\nfp32 comes to {loss:.4}: {share:.0} % of the way from the base rate's {blind:.4} to the best reachable {best:.4}"
        );
    }
    text
}

/// The figures in the table of batch sizes.
const OF_SIZES: [&str; 6] = ["steps", "samples a second", "test loss", "accuracy", "AUC", "bytes moved"];

/// The table of several batch sizes. Their chart goes to `--out`.
fn sizes(args: &CompareArgs, training: &Training, cells: &[Cell]) -> anyhow::Result<String> {
    let about = training.task.about();
    let budget = match args.seconds {
        Some(seconds) => format!("{seconds} s of training a run, on one core beside others: it depends on the machine"),
        None => counted(training.options.hyper.epochs as usize, "epoch"),
    };
    let records = figures::records(about.name, cells);
    if let Some(folder) = &args.out {
        let what = if records.iter().any(|record| record.what == "accuracy") { "accuracy" } else { "AUC" };
        let mut chart = charts::places(records.iter().filter(|record| record.what == what), "batch", 1);
        chart.title = format!("{}: batch size", about.name);
        (chart.x_label, chart.y_label) = ("Samples in a batch".to_owned(), format!("Test {what}"));
        let written = chart.write(&folder.join("batches"))?;
        output::note(&format!("pictures: {} and {}", written[0].display(), written[1].display()));
    }
    let shown = records.iter().filter(|record| OF_SIZES.contains(&record.what.as_str()));
    let table = report::table(shown, &["tables", "batch"], "what").unwrap_or_default();
    Ok(format!(
        "{}\n{budget}; the same rates for every batch size; means of {} seeds, ±: their 95 % interval\n\n{table}",
        about.source,
        training.seeds.len(),
    ))
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
