//! A setting for each table from a look at its first accesses and a few short runs (Yang 2020, section 6, leaves it to future work).
//!
//! Three steps. Each table's accesses are played through the simulator, which says what hit rate a cache of each size would
//! have. Then every precision with every wanted hit rate makes a candidate: each table takes the smallest cache that reaches the rate,
//! or stays in FP16 where none does. Then short runs try the candidates, from the one that takes the least memory, until one ends no
//! more than 0.02 % above FP32, and surely not 0.25 %.

mod propose;

use super::checkpoints::Keep;
use super::figures::{self, Cell, Interval, LOSS_CHANGE};
use super::journal;
use super::options::ProfileArgs;
use super::run::{Outcome, order};
use super::setting::{Setting, Setup};
use super::training::Training;
use crate::failure::Failure;
use crate::options::Options;
use crate::output;
use crate::report::{self, Unit, Value, units};
use propose::{Observed, Profile, propose};
use std::path::Path;

/// Steps whose accesses are looked at.
const STEPS: usize = 512;

/// Steps of a short run.
const TRIAL_STEPS: usize = 256;

/// Looks at a task, proposes, and asks the grid that lies in the results' folder.
pub(super) fn run(options: &Options, args: &ProfileArgs) -> Result<(), Failure> {
    args.run.check(options, [])?;
    let mut training = Training::open(options, &args.run, args.size.batch)?;
    let folder = training.folder(args.out.as_deref());
    let subject = training.subject();
    let observed = observe(&training);
    let samples = training.options.samples(&*training.task).min(TRIAL_STEPS * training.options.hyper.batch);
    (training.options.limit, training.options.hyper.epochs) = (Some(samples), 1);
    let trial = |settings: &[Setting], seeds: &[u64]| -> anyhow::Result<Vec<Outcome>> {
        let named =
            training.tables().iter().zip(settings).map(|(table, &setting)| (table.name.clone(), setting.into()));
        let setup = Setup { named: named.collect(), ..Setup::FP32 };
        let records = training.run_all(&journal::each(&[setup], seeds), &|_, _| Keep::default())?;
        Ok(records.into_iter().filter_map(|record| record.outcome).collect())
    };
    let profile = propose(training.tables(), &observed, &training.seeds, &trial)?;
    if let Some(path) = &options.json {
        output::write_json(path, &profile)?;
    }
    let steps = samples.div_ceil(training.options.hyper.batch);
    let how = format!("{steps} steps, {} seeds", training.seeds.len());
    output::print(&format!("{}\n{}", training.task.about().source, show(&profile, &how)))?;
    output::print(&against_grid(&profile, &folder, &subject)?)?;
    Ok(())
}

/// The first accesses of training, table by table.
fn observe(training: &Training) -> Vec<Observed> {
    let (task, seed) = (&*training.task, training.seeds[0]);
    let mut observed: Vec<Observed> = vec![Observed::default(); training.tables().len()];
    let order = order(training.options.samples(task), seed, 0);
    for samples in order.chunks(training.options.hyper.batch).take(STEPS) {
        let batch = task.train_batch(samples, seed, 0);
        observed.iter_mut().zip(&batch.bags).for_each(|(table, bags)| table.add(&bags.indices));
    }
    observed
}

/// The proposals, and the short runs that chose them.
fn show(profile: &Profile, how: &str) -> String {
    let share = |share: Option<f64>| share.map_or_else(|| "-".to_owned(), units::percent);
    let heads = ["table", "proposal", "rows", "memory by formula", "accesses to 1 % of rows", "LRU hits", "LFU hits"];
    let mut proposals = output::table(heads, 3);
    for proposal in &profile.proposals {
        // Without a cache, the largest that was played through.
        let at = proposal.predicted().or(proposal.predicted.last());
        let (rows, memory) = (Value::from(proposal.rows).to_string(), units::times(proposal.memory));
        let (top, lru, lfu) = (Some(proposal.top_1_percent), at.map(|at| at.lru), at.map(|at| at.lfu));
        let names = [proposal.table.clone(), proposal.setting.label(), rows, memory];
        proposals.add_row(names.into_iter().chain([top, lru, lfu].map(share)));
    }
    let mut trials = output::table(["candidate", "taken", "memory by formula", LOSS_CHANGE], 2);
    let mut failures = String::new();
    for trial in &profile.trials {
        let (taken, memory) = (if trial.taken { "yes" } else { "no" }.to_owned(), units::times(trial.memory));
        trials.add_row([trial.what.clone(), taken, memory, text(trial.loss_change)]);
        failures.extend(trial.failure.iter().map(|reason| format!("\n- {}: {reason}", trial.what)));
    }
    let tried = !profile.trials.is_empty();
    let trials = if tried { format!("\n\nShort runs ({how}):\n\n{trials}{failures}") } else { String::new() };
    format!("\n{proposals}{trials}\n\nAll tables: {:.4} of FP32's memory, by the papers' formula.", profile.memory)
}

/// A change as tables have it.
fn text(change: Option<Interval>) -> String {
    change.map_or_else(
        || "-".to_owned(),
        |change| change.record("", "", &report::Setting::default(), Unit::Change).text(),
    )
}

/// The proposals beside the figures of a grid of the same runs.
fn against_grid(profile: &Profile, folder: &Path, subject: &journal::Subject) -> anyhow::Result<String> {
    let records = journal::load(folder)?;
    let Some(first) = journal::common(&records, folder)? else {
        return Ok(format!("\nNo grid in {} to check this with: `hotrow train grid` makes one.", folder.display()));
    };
    if let Some((name, here, there)) = subject.difference(&first) {
        return Ok(format!("\nThe grid in {} has {name} = {there}, not {here}: not checked.", folder.display()));
    }
    let cells = figures::cells(&journal::latest(records));
    Ok(format!("\nAgainst the grid in {}:\n\n{}", folder.display(), check(profile, &cells)))
}

/// The grid's change and hit rate of each setting that is proposed for a large table; and of its smallest cell that is no worse than FP32.
fn check(profile: &Profile, cells: &[Cell]) -> String {
    let heads =
        ["which", "setting", "no worse than FP32", "runs", "memory by formula", "hits", "predicted hits", LOSS_CHANGE];
    let mut table = output::table(heads, 3);
    let mut add = |which: &str, of: Setting, predicted: Option<f64>| {
        let cell = figures::find(cells, of.plain());
        let figure = |what: &str| cell.and_then(|cell| cell.figure(what));
        let show = |value: Option<f64>, show: fn(f64) -> String| value.map_or_else(|| "-".to_owned(), show);
        let change = figure(LOSS_CHANGE);
        table.add_row([
            which.to_owned(),
            of.label(),
            change
                .and_then(|change| change.no_worse())
                .map_or("not shown", |met| if met { "met" } else { "not met" })
                .to_owned(),
            cell.map_or(0, |cell| cell.runs.len()).to_string(),
            show(figure("memory by formula").map(|memory| memory.mean), units::times),
            show(figure("hit rate").map(|rate| rate.mean), units::percent),
            show(predicted, units::percent),
            text(change),
        ]);
    };
    let mut asked: Vec<Setting> = Vec::new();
    for proposal in &profile.proposals {
        // The grid measures everything against FP32.
        let large = !proposal.predicted.is_empty() && proposal.setting != Setting::FP32;
        if large && !asked.contains(&proposal.setting) {
            asked.push(proposal.setting);
            let hits = proposal.predicted().map(|at| at.hit_rate_of(proposal.setting.policy));
            add("proposed", proposal.setting, hits);
        }
    }
    let no_worse =
        cells.iter().filter(|cell| cell.figure(LOSS_CHANGE).and_then(|change| change.no_worse()) == Some(true));
    let sizes = no_worse.filter_map(|cell| Some((cell.mean("memory by formula")?, cell.setup.rows()?)));
    if let Some((_, setting)) = sizes.min_by(|a, b| a.0.total_cmp(&b.0)) {
        add("smallest no worse", setting, None);
    }
    table.to_string()
}

#[cfg(test)]
mod tests;
