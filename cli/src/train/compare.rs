//! Settings side by side over seeds: the table that `hotrow train` prints.

use super::grid::command::jobs;
use super::interval::{Interval, loss_change};
use super::kept::{self, Keep};
use super::mixed;
use super::options::Args;
use super::outcome::Outcome;
use super::run::{self, RunOptions};
use super::setting::{Choice, Kind, SMALL_TABLE, Setting, WAYS};
use super::tables::{self, Rule};
use super::task::{TableSpec, Task};
use super::workers::side_by_side;
use crate::failure::Failure;
use crate::names::{PolicyName, PrecisionName, RoundingName, option_name};
use crate::options::Options;
use crate::output;
use crate::progress::Progress;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A choice over its seeds: the schema of `--json`.
#[derive(Debug, Serialize)]
struct Compared<'a> {
    task: &'a str,
    data: String,
    setting: &'a str,
    /// Of each table.
    tables: Vec<OfTable<'a>>,
    /// Mean over the runs, in nats a sample.
    loss: f64,
    /// In percent of FP32's, paired by seed (P1 eq. 1); none for FP32 itself.
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
pub(crate) fn run(options: &Options, args: &Args, task: &dyn Task, run_options: &RunOptions) -> Result<(), Failure> {
    let choices = labelled(args, task.tables(), run_options.rule)?;
    let seeds = args.seeds(options.seed);
    let folder = folder(args)?;
    if args.task.is_none() {
        output::note(&format!("no --task: {}", task.source()));
    }
    let outcomes = train_all(task, &choices, &seeds, run_options, args, folder.as_deref())?;
    let compared: Vec<Compared<'_>> = choices
        .iter()
        .zip(&outcomes)
        .enumerate()
        .map(|(at, (choice, runs))| compared(task, choice, &seeds, runs, (at > 0).then_some(&outcomes[0])))
        .collect();
    output::print(&heading(task, run_options, seeds.len()))?;
    output::print(&table(&compared).to_string())?;
    for choice in &compared {
        let sum = |of: fn(&Outcome) -> u64| choice.runs.iter().map(|run| of(run.outcome)).sum::<u64>();
        let (skipped, overflows) = (sum(|run| run.skipped_rows), sum(|run| run.overflows.unwrap_or(0)));
        if skipped > 0 {
            output::print(&format!(
                "{}: {skipped} updates of rows, or of shared weights, were not finite and left out: do not trust its loss; lower --lr",
                choice.setting
            ))?;
        }
        if overflows > 0 {
            output::print(&format!("{}: {overflows} steps overflowed and were left out", choice.setting))?;
        }
    }
    if let Some(text) = reach(task, &outcomes) {
        output::print(&text)?;
    }
    // Last: what was trained is on the screen by then, wherever this cannot be written.
    if let Some(path) = &options.json {
        output::write_json(path, &compared)?;
    }
    Ok(())
}

/// What is trained if nothing is said: the papers' point. Nearest rounding loses, stochastic rounding less, a small cache of hot rows
/// gives back the rest, in a fraction of the memory.
fn telling() -> Vec<Setting> {
    use PrecisionName::{Fp16, Int2, Int4, Int8};
    use RoundingName::{Nearest, Stochastic};
    let lfu = |precision, cache_percent| Setting {
        precision,
        rounding: Stochastic,
        policy: PolicyName::Lfu,
        cache_percent,
        ways: WAYS,
    };
    vec![
        Setting::FP32,
        Setting::uncached(Fp16, Nearest),
        Setting::uncached(Fp16, Stochastic),
        Setting::uncached(Int8, Nearest),
        Setting::uncached(Int8, Stochastic),
        lfu(Int8, 5.0),
        Setting::uncached(Int4, Nearest),
        Setting::uncached(Int4, Stochastic),
        lfu(Int4, 10.0),
        Setting::uncached(Int2, Stochastic),
        lfu(Int2, 10.0),
        lfu(Int2, 30.0),
    ]
}

/// Every choice that was asked for, with its name; first plain FP32, which the others are compared with.
pub(crate) fn labelled(args: &Args, tables: &[TableSpec], rule: Rule) -> Result<Vec<(String, Choice)>, Failure> {
    let (named, mut settings) = args.kinds();
    if settings.is_empty() && named.is_empty() {
        settings = telling().into_iter().map(Kind::from).collect();
    } else if settings.is_empty() || (!named.is_empty() && settings.len() == 1) {
        // With a table's own setting those that are not named stay.
        settings = vec![Kind::FP32; 2];
    }
    let of = |(at, &setting): (usize, &Kind)| {
        let mixed = if at == 0 { &[] } else { &named[..] };
        let label = [vec![setting.label()], mixed.iter().map(|mixed| mixed.label()).collect()].concat().join("; ");
        let choice = mixed::choice(setting, mixed.iter().copied(), tables).map_err(Failure::Usage)?;
        if setting.is_smaller() && !choice.settings.iter().any(Kind::is_smaller) {
            return Err(Failure::Usage(format!(
                "{label}: wanted a table of more than 1,000 rows to keep so, found none (smaller ones stay FP32, P1 4.3); \
                 take larger tables, or name one with --table"
            )));
        }
        tables::check(tables, &choice, rule).map_err(|error| Failure::Usage(format!("{label}: {error}")))?;
        Ok((label, choice))
    };
    settings.iter().enumerate().map(of).collect()
}

/// How many tables stay as they are, whatever is asked for all.
pub(crate) fn small(tables: &[TableSpec]) -> String {
    match tables.iter().filter(|table| table.rows <= SMALL_TABLE).count() {
        0 => String::new(),
        count => format!("{count} of {} tables, of at most {SMALL_TABLE} rows, stay FP32 unless named\n", tables.len()),
    }
}

/// Where checkpoints lie, if any are written or read.
fn folder(args: &Args) -> Result<Option<PathBuf>, Failure> {
    let out = args.resume.as_deref().or(args.grid.out());
    match (out, args.checkpoint_every) {
        (None, Some(_)) => {
            Err(Failure::Usage("--checkpoint-every: wanted --out DIR beside it, found none; give one".into()))
        }
        (Some(_), None) if args.resume.is_none() => Err(Failure::Usage(
            "--out: wanted --grid, --profile, --checkpoint-every or several --batch beside it, found none; the table goes \
             to --json"
                .into(),
        )),
        (out, _) => Ok(out.map(|out| out.join("checkpoints"))),
    }
}

/// The outcomes of each choice, seed by seed; as many runs at a time as there are cores. After one has failed no other begins.
fn train_all(
    task: &dyn Task,
    choices: &[(String, Choice)],
    seeds: &[u64],
    options: &RunOptions,
    args: &Args,
    folder: Option<&Path>,
) -> Result<Vec<Vec<Outcome>>, Failure> {
    let of = |label: &str, seed: u64| Keep {
        folder: folder.map(|folder| folder.join(run_name(label, seed))).unwrap_or_default(),
        every: args.checkpoint_every,
        resume: args.resume.is_some(),
    };
    let runs: Vec<(&Choice, u64, Keep)> = choices
        .iter()
        .flat_map(|(label, choice)| seeds.iter().map(move |&seed| (choice, seed, of(label, seed))))
        .collect();
    if let Some(resume) = &args.resume {
        let mut found = false;
        for (.., keep) in &runs {
            found |= kept::newest(&keep.folder)?.is_some();
        }
        if !found {
            return Err(Failure::Usage(format!(
                "--resume: wanted checkpoints of these settings and seeds in {}, found none; give the folder that --out \
                 named, and the same options",
                resume.display()
            )));
        }
    }
    let progress = Progress::new(task.name(), options.steps(task) * runs.len() as u64);
    let failed = AtomicBool::new(false);
    let one = |(choice, seed, keep): &(&Choice, u64, Keep)| {
        if failed.load(Relaxed) {
            return None;
        }
        let outcome = run::run_kept(task, choice, *seed, options, keep, &|steps| progress.advance(steps));
        failed.fetch_or(outcome.is_err(), Relaxed);
        Some(outcome.map_err(|error| error.context(format!("{}, seed {seed}", label_of(choices, choice)))))
    };
    let done = side_by_side(&runs, jobs(args, options), one);
    let outcomes = done.into_iter().flatten().collect::<anyhow::Result<Vec<Outcome>>>()?;
    Ok(outcomes.chunks(seeds.len()).map(<[Outcome]>::to_vec).collect())
}

fn label_of<'a>(choices: &'a [(String, Choice)], choice: &Choice) -> &'a str {
    choices.iter().find(|(_, other)| std::ptr::eq(other, choice)).map_or("", |(label, _)| label)
}

/// A folder's name for a run: letters, digits, points and dashes of its label.
fn run_name(label: &str, seed: u64) -> String {
    let parts = label.split(|c: char| !(c.is_ascii_alphanumeric() || c == '.')).filter(|part| !part.is_empty());
    parts.chain([format!("seed{seed}").as_str()]).collect::<Vec<_>>().join("-")
}

fn compared<'a>(
    task: &'a dyn Task,
    (label, choice): &'a (String, Choice),
    seeds: &[u64],
    runs: &'a [Outcome],
    fp32: Option<&Vec<Outcome>>,
) -> Compared<'a> {
    let changes = |fp32: &Vec<Outcome>| -> Vec<f64> {
        runs.iter().zip(fp32).map(|(run, fp32)| loss_change(run.loss, fp32.loss)).collect()
    };
    let of = |(table, &setting): (&'a TableSpec, &Kind)| OfTable {
        name: &table.name,
        rows: table.rows,
        dim: table.dim,
        setting,
    };
    Compared {
        task: task.name(),
        data: task.source(),
        setting: label,
        tables: task.tables().iter().zip(&choice.settings).map(of).collect(),
        loss: runs.iter().map(|run| run.loss).sum::<f64>() / runs.len() as f64,
        loss_change: fp32.and_then(|fp32| Interval::of(&changes(fp32))),
        runs: seeds.iter().zip(runs).map(|(&seed, outcome)| Seeded { seed, outcome }).collect(),
    }
}

/// What was trained, how, and what the columns mean.
fn heading(task: &dyn Task, options: &RunOptions, seeds: usize) -> String {
    let decay = if options.decay { ", both going down to 0" } else { "" };
    format!(
        "{}\n{}{} of {} samples a batch, {} at {}, dense part adagrad at {}{decay}; {seeds} {}\n\
         change: of the test loss against FP32 of the same seed, with its 95 % interval over the seeds\n\
         memory: of the tables against FP32 weights, by the papers' formula, and with the optimiser's state and all else that stays\n\
         moved: to and from the tables' memory in training; of robe at most, as if no chunks overlapped\n",
        task.source(),
        small(task.tables()),
        if options.epochs == 1 { "1 epoch".to_owned() } else { format!("{} epochs", options.epochs) },
        options.batch,
        option_name(&options.rule.optimizer),
        options.rule.lr,
        options.dense_lr,
        if seeds == 1 { "seed" } else { "seeds" },
    )
}

fn table(compared: &[Compared<'_>]) -> comfy_table::Table {
    let outcomes = || compared.iter().flat_map(|choice| choice.runs.iter().map(|run| run.outcome));
    let (accuracy, auc) = (outcomes().any(|run| run.accuracy.is_some()), outcomes().any(|run| run.auc.is_some()));
    let mut header = vec!["tables", "test loss", "change %"];
    header.extend(accuracy.then_some("accuracy %"));
    header.extend(auc.then_some("AUC"));
    header.extend(["hit rate %", "memory", "all", "moved MB", "samples/s"]);
    let mut table = output::table(header, 1);
    for choice in compared {
        let runs = || choice.runs.iter().map(|run| run.outcome);
        let mean = |of: fn(&Outcome) -> f64| runs().map(of).sum::<f64>() / choice.runs.len() as f64;
        let optional = |of: fn(&Outcome) -> Option<f64>, times: f64, digits: usize| {
            let found: Vec<f64> = runs().filter_map(of).collect();
            let mean = found.iter().sum::<f64>() / found.len() as f64;
            if found.is_empty() { String::new() } else { format!("{:.digits$}", times * mean) }
        };
        let mut row = vec![
            choice.setting.to_owned(),
            format!("{:.5}", choice.loss),
            choice.loss_change.map_or_else(String::new, |change| change.show("")),
        ];
        row.extend(accuracy.then(|| optional(|run| run.accuracy, 100.0, 2)));
        row.extend(auc.then(|| optional(|run| run.auc, 1.0, 4)));
        row.extend([
            optional(|run| run.hit_rate, 100.0, 1),
            format!("{:.3}", mean(|run| run.memory_paper)),
            format!("{:.3}", mean(|run| run.memory_true)),
            format!("{:.1}", mean(|run| run.bus_bytes as f64) / 1e6),
            format!("{:.0}", mean(|run| run.samples_per_second)),
        ]);
        table.add_row(row);
    }
    table
}

/// How near FP32 comes to the best loss, where that is known.
fn reach(task: &dyn Task, outcomes: &[Vec<Outcome>]) -> Option<String> {
    let (blind, best, fp32) = (task.blind_loss()?, task.best_loss()?, outcomes.first()?);
    let loss = fp32.iter().map(|run| run.loss).sum::<f64>() / fp32.len() as f64;
    let share = 100.0 * (blind - loss) / (blind - best);
    Some(format!(
        "fp32 comes to {loss:.4}: {share:.0} % of the way from the base rate's {blind:.4} to the best reachable {best:.4}"
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
