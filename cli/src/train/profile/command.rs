//! `hotrow train --profile`.

use super::super::grid::command::{jobs, subject};
use super::super::options::Args;
use super::super::outcome::Outcome;
use super::super::record;
use super::super::run::{self, RunOptions};
use super::super::setting::{Choice, Setting};
use super::super::task::Task;
use super::super::tasks::TaskName;
use super::super::workers;
use super::{Observed, Profile, check, propose};
use crate::failure::Failure;
use crate::names::option_name;
use crate::options::Options;
use crate::output;
use crate::progress::Progress;
use std::path::Path;

/// Steps whose accesses are looked at.
const STEPS: usize = 512;

/// Steps of a short run.
const TRIAL_STEPS: usize = 256;

/// Looks at a task, proposes, and asks the grid that lies in the results' folder.
pub(crate) fn run(
    options: &Options,
    args: &Args,
    name: TaskName,
    task: &dyn Task,
    run_options: &RunOptions,
) -> Result<(), Failure> {
    let observed = observe(task, run_options, options.seed);
    let samples = run_options.samples(task).min(TRIAL_STEPS * run_options.batch);
    let short = RunOptions { limit: Some(samples), epochs: 1, ..run_options.clone() };
    let (seeds, at_once) = (args.seeds(options.seed), jobs(args, run_options));
    let trial = |choice: &Choice<Setting>, seeds: &[u64]| -> anyhow::Result<Vec<Outcome>> {
        let progress = Progress::new("short runs", short.steps(task) * seeds.len() as u64);
        let choice = choice.kinds();
        let one = |&seed: &u64| run::run(task, &choice, seed, &short, &|steps| progress.advance(steps));
        workers::side_by_side(seeds, at_once, one).into_iter().collect()
    };
    let profile = propose(task.tables(), &observed, &seeds, &trial)?;
    if let Some(path) = &options.json {
        output::write_json(path, &profile)?;
    }
    let steps = samples.div_ceil(run_options.batch);
    output::print(&format!("{}\n{}", task.source(), show(&profile, &format!("{steps} steps, {} seeds", seeds.len()))))?;
    let folder = args.grid.folder(&option_name(&name));
    output::print(&asked(&profile, &folder, &subject(name, task, run_options))?)?;
    Ok(())
}

/// The first accesses of training, table by table.
fn observe(task: &dyn Task, run_options: &RunOptions, seed: u64) -> Vec<Observed> {
    let mut observed: Vec<Observed> = task.tables().iter().map(Observed::new).collect();
    let order = run::order(run_options.samples(task), seed, 0);
    for samples in order.chunks(run_options.batch).take(STEPS) {
        let batch = task.train_batch(samples, seed, 0);
        observed.iter_mut().zip(&batch.bags).for_each(|(table, bags)| table.add(&bags.indices));
    }
    observed
}

fn show(profile: &Profile, what: &str) -> String {
    let mut table = output::table(["table", "proposal", "rows", "memory", "why"], 2);
    for proposal in &profile.proposals {
        table.add_row([
            proposal.table.clone(),
            proposal.setting.label(),
            proposal.rows.to_string(),
            format!("{:.4}", proposal.memory),
            proposal.reason.clone(),
        ]);
    }
    let mut trials = output::table(["candidate", "memory", "loss above FP32's"], 1);
    for trial in &profile.trials {
        let found = match (&trial.loss_change, &trial.failure) {
            (Some(change), _) => change.show(" %"),
            (None, Some(reason)) => reason.clone(),
            (None, None) => "no seed".to_owned(),
        };
        trials.add_row([trial.what.clone(), format!("{:.4}", trial.memory), found]);
    }
    let tried = if profile.trials.is_empty() { String::new() } else { format!("\n\nShort runs ({what}):\n\n{trials}") };
    format!("\n{table}{tried}\n\nAll tables: {:.4} of FP32's memory, by P1's formula.", profile.memory)
}

/// What a grid of the same runs says.
fn asked(profile: &Profile, folder: &Path, subject: &record::Subject) -> anyhow::Result<String> {
    let records = record::load(folder)?;
    let Some(first) = record::common(&records, folder)? else {
        return Ok(format!("\nNo grid in {} to check this with: `hotrow train --grid` makes one.", folder.display()));
    };
    if let Some((name, here, there)) = subject.difference(&first) {
        return Ok(format!("\nThe grid in {} has {name} = {there}, not {here}: not checked.", folder.display()));
    }
    let said: Vec<String> =
        check(profile, &record::latest(records)).into_iter().map(|line| format!("- {line}")).collect();
    Ok(format!("\nAgainst the grid in {}:\n\n{}", folder.display(), said.join("\n")))
}
