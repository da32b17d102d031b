//! A setting for each table from a look at its first accesses and a few short runs (Yang 2020, section 6, leaves it to future work).
//!
//! Three steps. Each table's accesses are played through the simulator, which says what hit rate a cache of each size would
//! have. Then every precision with every wanted hit rate makes a candidate: each table takes the smallest cache that reaches the rate,
//! or stays in FP16 where none does. Then short runs try the candidates, from the one that takes the least memory, until one ends no
//! more than 0.02 % above FP32, and surely not 0.25 %.

mod propose;

use super::checkpoints::Keep;
use super::claims::{self, Verdict};
use super::conflicts::{self, Beside};
use super::journal;
use super::options::ProfileArgs;
use super::outcome::Outcome;
use super::run::order;
use super::setting::{Setting, Setup};
use super::summary::{self, Cell, LOSS_CHANGE, Value};
use super::training::Training;
use crate::failure::Failure;
use crate::options::Options;
use crate::output;
use crate::report::{self, Unit};
use propose::{Observed, Profile, propose};
use std::path::Path;

/// Steps whose accesses are looked at.
const STEPS: usize = 512;

/// Steps of a short run.
const TRIAL_STEPS: usize = 256;

/// Looks at a task, proposes, and asks the grid that lies in the results' folder.
pub(super) fn run(options: &Options, args: &ProfileArgs) -> Result<(), Failure> {
    conflicts::check(options, &args.run, &Beside::Nothing)?;
    let mut training = Training::open(options, &args.run, args.size.batch)?;
    let folder = training.folder(args.out.as_deref());
    let subject = training.subject();
    let observed = observe(&training);
    let samples = training.options.samples(&*training.task).min(TRIAL_STEPS * training.options.batch);
    (training.options.limit, training.options.epochs) = (Some(samples), 1);
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
    let steps = samples.div_ceil(training.options.batch);
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
    for samples in order.chunks(training.options.batch).take(STEPS) {
        let batch = task.train_batch(samples, seed, 0);
        observed.iter_mut().zip(&batch.bags).for_each(|(table, bags)| table.add(&bags.indices));
    }
    observed
}

/// The proposals, and the short runs that chose them.
fn show(profile: &Profile, how: &str) -> String {
    let (mut proposals, mut trials, mut failures) = (Vec::new(), Vec::new(), String::new());
    for proposal in &profile.proposals {
        let setting = report::Setting::default().with("table", proposal.table.as_str());
        let setting = setting.with("proposal", proposal.setting.label()).with("rows", proposal.rows);
        // Without a cache, the largest that was played through.
        let at = proposal.predicted().or(proposal.predicted.last());
        let found = [
            ("memory by formula", Some(proposal.memory), Unit::Times),
            ("accesses to 1 % of rows", Some(proposal.top_1_percent), Unit::Share),
            ("LRU hits", at.map(|at| at.lru), Unit::Share),
            ("LFU hits", at.map(|at| at.lfu), Unit::Share),
        ];
        proposals.extend(summary::figures("", &setting, found));
    }
    for trial in &profile.trials {
        let setting = report::Setting::default().with("candidate", trial.what.as_str());
        let setting = setting.with("taken", if trial.taken { "yes" } else { "no" });
        trials.extend(summary::figures("", &setting, [("memory by formula", Some(trial.memory), Unit::Times)]));
        trials.extend(trial.loss_change.map(|change| change.record(LOSS_CHANGE, "", &setting, Unit::Change)));
        failures.extend(trial.failure.iter().map(|reason| format!("\n- {}: {reason}", trial.what)));
    }
    let proposals = report::table(&proposals, &["table", "proposal", "rows"], "what").unwrap_or_default();
    let trials = report::table(&trials, &["candidate", "taken"], "what");
    let trials = trials.map_or_else(String::new, |trials| format!("\n\nShort runs ({how}):\n\n{trials}{failures}"));
    format!("\n{proposals}{trials}\n\nAll tables: {:.4} of FP32's memory, by the papers' formula.", profile.memory)
}

/// The proposals beside what a grid of the same runs measured.
fn against_grid(profile: &Profile, folder: &Path, subject: &journal::Subject) -> anyhow::Result<String> {
    let records = journal::load(folder)?;
    let Some(first) = journal::common(&records, folder)? else {
        return Ok(format!("\nNo grid in {} to check this with: `hotrow train grid` makes one.", folder.display()));
    };
    if let Some((name, here, there)) = subject.difference(&first) {
        return Ok(format!("\nThe grid in {} has {name} = {there}, not {here}: not checked.", folder.display()));
    }
    let cells = summary::cells(&journal::latest(records));
    Ok(format!("\nAgainst the grid in {}:\n\n{}", folder.display(), check(profile, &cells)))
}

/// The grid's change and hit rate of each setting that is proposed for a large table; and of its smallest cell that is no worse than FP32.
fn check(profile: &Profile, cells: &[Cell]) -> String {
    let mut figures = Vec::new();
    let mut add = |which: &str, of: Setting, predicted: Option<f64>| {
        let cell = claims::find(cells, of.plain());
        let change = cell.and_then(Cell::loss_change);
        let verdict = change.map_or(Verdict::NotShown, |change| claims::stand(&change));
        let setting = report::Setting::default().with("which", which).with("setting", of.label());
        let setting = setting.with("no worse than FP32", verdict.name());
        let mean = |of: Value| cell.and_then(|cell| cell.mean(of));
        let found = [
            ("runs", Some(cell.map_or(0.0, |cell| cell.runs.len() as f64)), Unit::Count),
            ("memory by formula", mean(|run| Some(run.memory_paper)), Unit::Times),
            ("hits", mean(|run| run.hit_rate), Unit::Share),
            ("predicted hits", predicted, Unit::Share),
        ];
        figures.extend(summary::figures("", &setting, found));
        figures.extend(change.map(|change| change.record(LOSS_CHANGE, "", &setting, Unit::Change)));
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
    let no_worse = cells.iter().filter_map(|cell| {
        let met = claims::stand(&cell.loss_change()?) == Verdict::Met;
        Some((cell.mean(|run| Some(run.memory_paper))?, cell.setup.rows()?)).filter(|_| met)
    });
    if let Some((_, setting)) = no_worse.min_by(|a, b| a.0.total_cmp(&b.0)) {
        add("smallest no worse", setting, None);
    }
    report::table(&figures, &["which", "setting", "no worse than FP32"], "what").unwrap_or_default()
}

#[cfg(test)]
mod tests;
