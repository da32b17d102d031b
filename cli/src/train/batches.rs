//! Batch sizes side by side: what a larger batch costs in accuracy and gains in time, after as many epochs or as many seconds
//! (P3 Table VII).

use super::charts;
use super::grid::command::jobs;
use super::interval::Interval;
use super::options::Args;
use super::outcome::Outcome;
use super::run::{self, RunOptions};
use super::setting::{Choice, Setting};
use super::task::Task;
use super::workers::side_by_side;
use crate::failure::Failure;
use crate::options::Options;
use crate::output;
use crate::plot::{Chart, Series};
use crate::progress::Progress;
use serde::Serialize;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A batch size and a setting over the seeds: the schema of `--json`.
#[derive(Debug, Serialize)]
struct Sized<'a> {
    task: &'a str,
    data: String,
    /// Samples in a batch.
    batch: usize,
    setting: String,
    /// The budget: one of the two.
    epochs: Option<u32>,
    seconds: Option<f64>,
    /// Test log-loss in nats a sample, with its 95 % interval over the seeds.
    loss: Option<Interval>,
    /// Accuracy in percent, or the AUC.
    score: Option<Interval>,
    runs: Vec<Outcome>,
}

/// What several batch sizes cannot be asked for with; before any data is read.
pub(crate) fn check(args: &Args) -> Result<(), Failure> {
    if args.batch.len() < 2 {
        return match args.seconds {
            Some(_) => Err(Failure::Usage(
                "--seconds: wanted several batch sizes to compare, found one; give --batch 256,1024, or take --epochs"
                    .to_owned(),
            )),
            None => Ok(()),
        };
    }
    if args.seconds.is_some() && args.epochs.is_some() {
        return Err(Failure::Usage("--seconds: wanted no --epochs beside it, found both; leave one out".to_owned()));
    }
    let others = [
        ("--grid", args.grid.grid),
        ("--profile", args.grid.profile),
        ("--table", !args.table.is_empty()),
        ("--checkpoint-every", args.checkpoint_every.is_some()),
        ("--resume", args.resume.is_some()),
        ("--until-full", args.until.until_full.is_some()),
    ];
    match others.into_iter().find(|&(_, given)| given) {
        Some((other, _)) => Err(Failure::Usage(format!(
            "--batch: wanted one size beside {other}, found {}; leave one out",
            args.batch.len()
        ))),
        None => Ok(()),
    }
}

/// Trains every batch size with every seed, and prints what came of it.
pub(crate) fn run(options: &Options, args: &Args, task: &dyn Task, run_options: &RunOptions) -> Result<(), Failure> {
    let settings = args.settings();
    let settings = if settings.is_empty() { vec![Setting::FP32] } else { settings };
    let seeds = args.seeds(options.seed);
    let mut sizes: Vec<usize> = args.batch.iter().map(|&batch| batch as usize).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let cells: Vec<(Setting, usize)> =
        settings.iter().flat_map(|&setting| sizes.iter().map(move |&batch| (setting, batch))).collect();
    let runs: Vec<(Setting, usize, u64)> =
        cells.iter().flat_map(|&(setting, batch)| seeds.iter().map(move |&seed| (setting, batch, seed))).collect();

    let progress = Progress::new(task.name(), runs.len() as u64);
    let failed = AtomicBool::new(false);
    let one = |&(setting, batch, seed): &(Setting, usize, u64)| {
        if failed.load(Relaxed) {
            return None;
        }
        let choice = Choice::uniform(setting, task.tables());
        let outcome = run::run(task, &choice, seed, &RunOptions { batch, ..run_options.clone() }, &|_| ());
        failed.fetch_or(outcome.is_err(), Relaxed);
        progress.advance(1);
        Some(outcome.map_err(|error| error.context(format!("batch {batch}, {}, seed {seed}", setting.label()))))
    };
    let outcomes = side_by_side(&runs, jobs(args, run_options), one);
    let outcomes = outcomes.into_iter().flatten().collect::<anyhow::Result<Vec<Outcome>>>()?;
    drop(progress);

    let sized: Vec<Sized<'_>> = cells
        .iter()
        .zip(outcomes.chunks(seeds.len()))
        .map(|(&(setting, batch), runs)| sized(task, run_options, setting, batch, runs))
        .collect();
    output::print(&heading(task, run_options, seeds.len()))?;
    output::print(&table(&sized).to_string())?;
    if let Some(folder) = args.grid.out() {
        std::fs::create_dir_all(folder)?;
        let written = chart(task, &settings, &sized).write(&folder.join("batches"))?;
        output::note(&format!("pictures: {} and {}", written[0].display(), written[1].display()));
    }
    if let Some(path) = &options.json {
        output::write_json(path, &sized)?;
    }
    Ok(())
}

fn sized<'a>(task: &'a dyn Task, options: &RunOptions, setting: Setting, batch: usize, runs: &[Outcome]) -> Sized<'a> {
    let over = |of: fn(&Outcome) -> Option<f64>| Interval::of(&runs.iter().filter_map(of).collect::<Vec<_>>());
    Sized {
        task: task.name(),
        data: task.source(),
        batch,
        setting: setting.label(),
        epochs: options.seconds.is_none().then_some(options.epochs),
        seconds: options.seconds,
        loss: over(|run| Some(run.loss)),
        score: over(|run| run.accuracy.map(|accuracy| 100.0 * accuracy).or(run.auc)),
        runs: runs.to_vec(),
    }
}

fn heading(task: &dyn Task, options: &RunOptions, seeds: usize) -> String {
    let budget = match options.seconds {
        Some(seconds) => format!("{seconds} s of training a run, on one core beside others: it depends on the machine"),
        None if options.epochs == 1 => "1 epoch".to_owned(),
        None => format!("{} epochs", options.epochs),
    };
    format!(
        "{}\n{budget}; the same rates for every batch size; means of {seeds} seeds, ±: their 95 % interval\n",
        task.source()
    )
}

/// What scores are, by what the task has.
fn score_name(sized: &[Sized<'_>]) -> &'static str {
    if sized.iter().any(|row| row.runs.iter().any(|run| run.accuracy.is_some())) { "accuracy %" } else { "AUC" }
}

fn table(sized: &[Sized<'_>]) -> comfy_table::Table {
    let header = ["tables", "batch", "steps", "samples/s", "test loss", score_name(sized), "moved MB"];
    let mut table = output::table(header, 1);
    for row in sized {
        let mean = |of: fn(&Outcome) -> f64| row.runs.iter().map(of).sum::<f64>() / row.runs.len() as f64;
        let shown = |value: &Option<Interval>, digits: usize| match value {
            None => String::new(),
            Some(value) => match value.half() {
                Some(half) => format!("{:.digits$} ±{half:.digits$}", value.mean),
                None => format!("{:.digits$}", value.mean),
            },
        };
        table.add_row([
            row.setting.clone(),
            row.batch.to_string(),
            format!("{:.0}", mean(|run| run.steps as f64)),
            format!("{:.0}", mean(|run| run.samples_per_second)),
            shown(&row.loss, 5),
            shown(&row.score, 4),
            format!("{:.1}", mean(|run| run.bus_bytes as f64) / 1e6),
        ]);
    }
    table
}

/// The score over the batch size, a line a setting.
fn chart(task: &dyn Task, settings: &[Setting], sized: &[Sized<'_>]) -> Chart {
    let score = match score_name(sized) {
        "AUC" => "Test AUC",
        _ => "Test accuracy, %",
    };
    let mut chart = Chart::new("Samples in a batch", score);
    chart.title = format!("{}: batch size", task.name());
    let mut sizes: Vec<usize> = sized.iter().map(|row| row.batch).collect();
    sizes.sort_unstable();
    sizes.dedup();
    chart.x_names = sizes.iter().map(usize::to_string).collect();
    for (colour, setting) in settings.iter().enumerate() {
        let label = setting.label();
        let rows = sized.iter().filter(|row| row.setting == label);
        let placed = rows.filter_map(|row| {
            let score = row.score?;
            Some((sizes.binary_search(&row.batch).ok()? as f64, score.mean, score.half().unwrap_or(0.0)))
        });
        let placed: Vec<(f64, f64, f64)> = placed.collect();
        chart.series.push(Series {
            label,
            points: placed.iter().map(|&(x, y, _)| (x, y)).collect(),
            colour,
            dashed: false,
            markers: true,
            spread: placed.iter().map(|&(_, _, half)| (half, half)).collect(),
        });
    }
    charts::spread_out(&mut chart);
    chart
}
