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
use super::summary::{self, Cell};
use super::training::Training;
use crate::failure::Failure;
use crate::options::Options;
use crate::output;
use propose::{Observed, Profile, Proposal, propose};
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

fn percent(share: f64) -> String {
    format!("{:.1}", 100.0 * share)
}

fn show(profile: &Profile, how: &str) -> String {
    let header = ["table", "proposal", "rows", "memory", "top 1 % of rows take %", "LRU hits %", "LFU hits %"];
    let mut table = output::table(header, 2);
    for proposal in &profile.proposals {
        // Without a cache, the largest that was played through.
        let at = proposal.predicted().or(proposal.predicted.last());
        table.add_row([
            proposal.table.clone(),
            proposal.setting.label(),
            proposal.rows.to_string(),
            format!("{:.4}", proposal.memory),
            percent(proposal.top_1_percent),
            at.map_or_else(String::new, |at| percent(at.lru)),
            at.map_or_else(String::new, |at| percent(at.lfu)),
        ]);
    }
    let mut trials = output::table(["candidate", "memory", "loss above FP32's", "taken"], 1);
    for trial in &profile.trials {
        let found = match (&trial.loss_change, &trial.failure) {
            (Some(change), _) => change.show(" %"),
            (None, Some(reason)) => reason.clone(),
            (None, None) => "no seed".to_owned(),
        };
        let taken = if trial.taken { "yes" } else { "no" };
        trials.add_row([trial.what.clone(), format!("{:.4}", trial.memory), found, taken.to_owned()]);
    }
    let tried = if profile.trials.is_empty() { String::new() } else { format!("\n\nShort runs ({how}):\n\n{trials}") };
    format!("\n{table}{tried}\n\nAll tables: {:.4} of FP32's memory, by the papers' formula.", profile.memory)
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
fn check(profile: &Profile, cells: &[Cell]) -> comfy_table::Table {
    let header = ["", "setting", "memory", "loss above FP32's", "no worse", "hits %", "predicted %"];
    let mut table = output::table(header, 2);
    let mut add = |name: &str, setting: Setting, proposal: Option<&Proposal>| {
        let cell = claims::find(cells, setting.plain());
        let change = cell.and_then(Cell::loss_change);
        let hits = cell.and_then(|cell| cell.mean(|run| run.hit_rate));
        let memory = cell.and_then(|cell| cell.mean(|run| Some(run.memory_paper)));
        let predicted = proposal.and_then(|proposal| Some(proposal.predicted()?.hit_rate_of(setting.policy)));
        table.add_row([
            name.to_owned(),
            setting.label(),
            memory.map_or_else(String::new, |memory| format!("{memory:.4}")),
            change.map_or_else(|| "not run".to_owned(), |change| change.show(" %")),
            change.map_or("", |change| claims::stand(&change).name()).to_owned(),
            hits.map_or_else(String::new, percent),
            predicted.map_or_else(String::new, percent),
        ]);
    };
    let mut asked: Vec<Setting> = Vec::new();
    for proposal in &profile.proposals {
        // The grid measures everything against FP32.
        let large = !proposal.predicted.is_empty() && proposal.setting != Setting::FP32;
        if large && !asked.contains(&proposal.setting) {
            asked.push(proposal.setting);
            add("proposed", proposal.setting, Some(proposal));
        }
    }
    let no_worse = cells.iter().filter_map(|cell| {
        let met = claims::stand(&cell.loss_change()?) == Verdict::Met;
        Some((cell.mean(|run| Some(run.memory_paper))?, cell.setup.rows()?)).filter(|_| met)
    });
    if let Some((_, setting)) = no_worse.min_by(|a, b| a.0.total_cmp(&b.0)) {
        add("smallest no worse", setting, None);
    }
    table
}

#[cfg(test)]
mod tests;
