//! Proposes a setting for each table from its first accesses and a few short runs, which Yang 2020, section 6, leaves to future work.
//!
//! There are three steps. First, the simulator gives the hit rate of each cache size for each table's accesses. Second, every precision
//! with every wanted hit rate is a candidate: each table takes the smallest cache that reaches the rate, or stays in FP16 if no cache does.
//! Third, short runs try the candidates in order of memory, until one ends at most 0.02 % above FP32, and surely less than 0.25 % above.

use super::checkpoints::Keep;
use super::figures::{self, Cell, Interval, LOSS_CHANGE, NEUTRAL, loss_change};
use super::journal;
use super::options::ProfileArgs;
use super::run::{End, Outcome};
use super::setting::{SMALL_TABLE, Setting, Setup, WAYS};
use super::task::TableSpec;
use super::training::Training;
use hotrow_cli::failure::Failure;
use hotrow_cli::options::Options;
use hotrow_cli::output;
use hotrow_cli::report::{self, Record as Figure, Unit};
use hotrow::scars::{Counting, Profile as Uses};
use hotrow::simulate::{Geometry, Simulator};
use hotrow::{Policy, Precision, Rounding, memory_factor};
use serde::Serialize;
use std::path::Path;

/// Number of steps whose accesses are used.
const STEPS: usize = 512;

/// Number of steps of a short run.
const TRIAL_STEPS: usize = 256;

/// Cache shares that are proposed, in percent: those of the grid, so that it can check them.
const SHARES: [f64; 6] = [0.1, 1.0, 5.0, 10.0, 30.0, 50.0];

const TARGETS: [f64; 5] = [0.6, 0.7, 0.8, 0.9, 0.95];

const PRECISIONS: [Precision; 3] = [Precision::Int2, Precision::Int4, Precision::Int8];

/// LFU keeps a counter for every row, so its hit rate must be higher by this much.
const LFU_GAIN: f64 = 0.005;

/// The most accesses of a table that are used.
const ACCESSES: usize = 1 << 21;

/// The percentage above FP32's loss that the interval of the short runs must stay below, since their mean alone may be luck.
const SURE: f64 = 0.25;

const FP16: Setting = Setting::uncached(Precision::Fp16, Rounding::Stochastic);

/// Makes the proposals, and compares them with the grid in the folder of the results.
pub(super) fn run(options: &Options, args: &ProfileArgs) -> Result<(), Failure> {
    args.run.check(options, [])?;
    let mut training = Training::open(options, &args.run, args.size.batch, None)?;
    let folder = training.folder(args.out.as_deref());
    let subject = training.subject();
    let observed = observe(&training);
    let samples = training.options.samples(&*training.task).min(TRIAL_STEPS * training.options.hyper.batch);
    (training.options.limit, training.options.hyper.epochs) = (Some(samples), 1);
    let trial = |settings: &[Setting], seeds: &[u64]| -> anyhow::Result<Vec<Outcome>> {
        let named =
            training.tables().iter().zip(settings).map(|(table, &setting)| (table.name.clone(), setting.into()));
        let setup = Setup { named: named.collect(), ..Setup::FP32 };
        let records = training.run_all(&journal::each(&[setup], seeds), &|_, _| (End::Epochs, Keep::default()))?;
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

/// The first accesses of training, by table.
fn observe(training: &Training) -> Vec<Observed> {
    let mut observed = vec![Observed::default(); training.tables().len()];
    for batch in training.batches().take(STEPS) {
        observed.iter_mut().zip(&batch.bags).for_each(|(table, bags)| table.add(&bags.indices));
    }
    observed
}

/// The first accesses of a table, by batch.
#[derive(Clone, Debug, Default)]
struct Observed {
    batches: Vec<Vec<u32>>,
}

impl Observed {
    /// Adds a batch, unless there are enough accesses.
    fn add(&mut self, indices: &[u32]) {
        if self.accesses() + indices.len() <= ACCESSES {
            self.batches.push(indices.to_vec());
        }
    }

    fn accesses(&self) -> usize {
        self.batches.iter().map(Vec::len).sum()
    }

    /// The share of the accesses, 0 to 1, that go to the most used 1 % of the rows.
    fn top_1_percent(&self, table: &TableSpec) -> anyhow::Result<f64> {
        let mut uses = Uses::new(&[table.rows], Counting::Exact);
        self.batches.iter().try_for_each(|batch| uses.count(0, batch))?;
        Ok(uses.ranked().share_of((f64::from(table.rows) / 100.0).ceil() as usize))
    }

    /// The hit rate, 0 to 1, in the second half of the batches; the first half fills the cache.
    fn hit_rate(&self, table: &TableSpec, policy: Policy, percent: f64) -> anyhow::Result<f64> {
        let shape = Geometry::of_percent(u64::from(table.rows), percent, WAYS)?;
        let mut cache = Simulator::new(shape.sets, shape.ways, policy)?;
        let (first, second) = self.batches.split_at(self.batches.len() / 2);
        first.iter().for_each(|batch| cache.step(batch));
        let before = cache.counters();
        second.iter().for_each(|batch| cache.step(batch));
        let after = cache.counters();
        Ok((after.hits - before.hits) as f64 / (after.accesses - before.accesses).max(1) as f64)
    }
}

/// Predicted hit rates, 0 to 1, for a cache size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Predicted {
    cache_percent: f64,
    lru: f64,
    lfu: f64,
}

impl Predicted {
    fn policy(&self) -> Policy {
        if self.lfu >= self.lru + LFU_GAIN { Policy::Lfu } else { Policy::Lru }
    }

    fn hit_rate(&self, policy: Policy) -> f64 {
        match policy {
            Policy::Lru => self.lru,
            _ => self.lfu,
        }
    }
}

#[derive(Clone, Debug, Serialize)]
struct Proposal {
    table: String,
    rows: u32,
    setting: Setting,
    /// The share of the accesses, 0 to 1, that go to the most used 1 % of the rows.
    top_1_percent: f64,
    /// Predictions; empty for small tables.
    predicted: Vec<Predicted>,
    /// Memory by the formula of Yang 2020, against FP32.
    memory: f64,
}

impl Proposal {
    /// FP32, with the predictions for a large table's caches.
    fn new(table: &TableSpec, seen: &Observed) -> anyhow::Result<Self> {
        let at = |cache_percent| -> anyhow::Result<Predicted> {
            let [lru, lfu] = [Policy::Lru, Policy::Lfu].map(|policy| seen.hit_rate(table, policy, cache_percent));
            Ok(Predicted { cache_percent, lru: lru?, lfu: lfu? })
        };
        let shares = if table.rows <= SMALL_TABLE { &[][..] } else { &SHARES };
        Ok(Self {
            table: table.name.clone(),
            rows: table.rows,
            setting: Setting::FP32,
            top_1_percent: seen.top_1_percent(table)?,
            predicted: shares.iter().map(|&share| at(share)).collect::<anyhow::Result<_>>()?,
            memory: 1.0,
        })
    }

    /// The prediction for the proposed cache.
    fn predicted(&self) -> Option<&Predicted> {
        self.predicted.iter().find(|at| at.cache_percent == self.setting.cache_percent)
    }

    /// The smallest cache that reaches the hit rate; FP16 if none does, FP32 for a small table.
    fn reaching(&self, precision: Precision, target: f64) -> Setting {
        let smallest = self.predicted.iter().find(|at| at.hit_rate(at.policy()) >= target);
        let cached =
            |at: &Predicted| Setting { policy: at.policy(), ..Setting::lfu(precision, at.cache_percent, WAYS) };
        smallest.map_or(self.uncached(), cached)
    }

    fn uncached(&self) -> Setting {
        if self.predicted.is_empty() { Setting::FP32 } else { FP16 }
    }
}

/// A candidate, with its short run: a precision and a hit rate for the large tables.
#[derive(Clone, Debug, Serialize)]
struct Trial {
    what: String,
    /// Memory of all tables by the formula of Yang 2020, against FP32.
    memory: f64,
    /// The change of the test log-loss against FP32 after an equal short run, in percent.
    loss_change: Option<Interval>,
    failure: Option<String>,
    taken: bool,
    #[serde(skip)]
    settings: Vec<Setting>,
}

/// The schema of the profile's JSON.
#[derive(Clone, Debug, Serialize)]
struct Profile {
    schema: u32,
    proposals: Vec<Proposal>,
    trials: Vec<Trial>,
    /// Memory of all tables by the formula of Yang 2020, against FP32.
    memory: f64,
}

/// Makes short runs with a setting for each table, a run for each seed.
type TrialRunner<'a> = dyn Fn(&[Setting], &[u64]) -> anyhow::Result<Vec<Outcome>> + 'a;

/// Proposes a setting for each of `tables`. `observed` has the same order.
fn propose(
    tables: &[TableSpec],
    observed: &[Observed],
    seeds: &[u64],
    trial: &TrialRunner<'_>,
) -> anyhow::Result<Profile> {
    let proposals = tables.iter().zip(observed).map(|(table, seen)| Proposal::new(table, seen));
    let mut proposals = proposals.collect::<anyhow::Result<Vec<_>>>()?;
    let candidates = candidates(tables, &proposals);
    let mut trials: Vec<Trial> = Vec::new();
    // FP32, which the others are compared with, must not fail.
    let plain = vec![Setting::FP32; tables.len()];
    let fp32 = if candidates.is_empty() { Vec::new() } else { trial(&plain, seeds)? };
    for mut candidate in candidates {
        match trial(&candidate.settings, seeds) {
            Ok(runs) => {
                let changes = runs.iter().zip(&fp32).map(|(run, fp32)| loss_change(run.loss, fp32.loss));
                candidate.loss_change = Interval::of(&changes.collect::<Vec<_>>());
            }
            Err(error) => candidate.failure = Some(format!("{error:#}")),
        }
        candidate.taken = candidate.loss_change.as_ref().is_some_and(good);
        trials.push(candidate);
        if trials.last().is_some_and(|trial| trial.taken) {
            break;
        }
    }
    let taken = trials.last().filter(|trial| trial.taken);
    for ((proposal, table), &setting) in proposals.iter_mut().zip(tables).zip(taken.map_or(&plain, |one| &one.settings))
    {
        (proposal.setting, proposal.memory) = (setting, factor(table, &setting));
    }
    let memory = taken.map_or(1.0, |trial| trial.memory);
    Ok(Profile { schema: 2, proposals, trials, memory })
}

/// Whether the short runs accept a candidate. A single seed has no interval.
fn good(change: &Interval) -> bool {
    change.mean <= NEUTRAL && change.high.is_none_or(|high| high <= SURE)
}

/// The candidates, least memory first. The last is FP16 without a cache; candidates with more memory are dropped.
fn candidates(tables: &[TableSpec], proposals: &[Proposal]) -> Vec<Trial> {
    if proposals.iter().all(|proposal| proposal.predicted.is_empty()) {
        return Vec::new();
    }
    let candidate = |what: String, of: &dyn Fn(&Proposal) -> Setting| {
        let settings: Vec<Setting> = proposals.iter().map(of).collect();
        Trial { what, memory: memory(tables, &settings), loss_change: None, failure: None, taken: false, settings }
    };
    let plain = candidate("fp16, no cache".to_owned(), &Proposal::uncached);
    let mut candidates: Vec<Trial> = Vec::new();
    for precision in PRECISIONS {
        for target in TARGETS {
            let what = format!("{precision}, caches for {:.0} % hits", 100.0 * target);
            let one = candidate(what, &|proposal| proposal.reaching(precision, target));
            if one.memory < plain.memory && candidates.iter().all(|other| other.settings != one.settings) {
                candidates.push(one);
            }
        }
    }
    candidates.sort_by(|a, b| a.memory.total_cmp(&b.memory));
    candidates.push(plain);
    candidates
}

fn factor(table: &TableSpec, setting: &Setting) -> f64 {
    let share = setting.cache_percent / 100.0;
    memory_factor(table.dim, setting.precision, share, setting.policy)
}

/// The memory of all tables against FP32.
fn memory(tables: &[TableSpec], settings: &[Setting]) -> f64 {
    let weights = |table: &TableSpec| f64::from(table.rows) * f64::from(table.dim);
    let all: f64 = tables.iter().map(weights).sum();
    tables.iter().zip(settings).map(|(table, setting)| weights(table) * factor(table, setting)).sum::<f64>() / all
}

/// The figures of a setting that have a value.
fn figures_of<'a>(
    setting: &'a report::Setting,
    found: impl IntoIterator<Item = (&'a str, Option<f64>, Unit)> + 'a,
) -> impl Iterator<Item = Figure> + 'a {
    found.into_iter().filter_map(move |(what, value, unit)| Some(Figure::new(what, "", setting, value?, unit)))
}

/// The text: the proposals, and the short runs that chose them.
fn show(profile: &Profile, how: &str) -> String {
    let (mut proposals, mut trials, mut failures) = (Vec::new(), Vec::new(), String::new());
    for proposal in &profile.proposals {
        let setting = report::Setting::default().with("table", proposal.table.as_str());
        let setting = setting.with("proposal", proposal.setting.label()).with("rows", proposal.rows);
        // For a proposal without a cache, the prediction of the largest cache.
        let at = proposal.predicted().or(proposal.predicted.last());
        let found = [
            ("memory by formula", Some(proposal.memory), Unit::Times),
            ("accesses to 1 % of rows", Some(proposal.top_1_percent), Unit::Share),
            ("LRU hits", at.map(|at| at.lru), Unit::Share),
            ("LFU hits", at.map(|at| at.lfu), Unit::Share),
        ];
        proposals.extend(figures_of(&setting, found));
    }
    for trial in &profile.trials {
        let setting = report::Setting::default().with("candidate", trial.what.as_str());
        let setting = setting.with("taken", if trial.taken { "yes" } else { "no" });
        trials.extend(figures_of(&setting, [("memory by formula", Some(trial.memory), Unit::Times)]));
        trials.extend(trial.loss_change.map(|change| change.record(LOSS_CHANGE, "", &setting, Unit::Change)));
        failures.extend(trial.failure.iter().map(|reason| format!("\n- {}: {reason}", trial.what)));
    }
    let proposals = report::table(&proposals, &["table", "proposal", "rows"], "what").unwrap_or_default();
    let trials = report::table(&trials, &["candidate", "taken"], "what");
    let trials = trials.map_or_else(String::new, |trials| format!("\n\nShort runs ({how}):\n\n{trials}{failures}"));
    format!("\n{proposals}{trials}\n\nAll tables: {:.4} of FP32's memory, by the formula of Yang 2020.", profile.memory)
}

/// Compares the proposals with a grid of the same task.
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

/// The grid's change and hit rate for each setting proposed for a large table, and for its smallest cell that is no worse than FP32.
fn check(profile: &Profile, cells: &[Cell]) -> String {
    let mut found: Vec<Figure> = Vec::new();
    let mut add = |which: &str, of: Setting, predicted: Option<f64>| {
        let cell = figures::find(cells, of.plain());
        let change = cell.and_then(|cell| cell.figure(LOSS_CHANGE));
        let no_worse = change.and_then(|change| change.no_worse());
        let setting = report::Setting::default().with("which", which).with("setting", of.label());
        let verdict = no_worse.map_or("not shown", |met| if met { "met" } else { "not met" });
        let setting = setting.with("no worse than FP32", verdict);
        let mean = |what: &str| cell.and_then(|cell| cell.mean(what));
        let figures = [
            ("runs", Some(cell.map_or(0.0, |cell| cell.runs.len() as f64)), Unit::Count),
            ("memory by formula", mean("memory by formula"), Unit::Times),
            ("hits", mean("hit rate"), Unit::Share),
            ("predicted hits", predicted, Unit::Share),
        ];
        found.extend(figures_of(&setting, figures));
        found.extend(change.map(|change| change.record(LOSS_CHANGE, "", &setting, Unit::Change)));
    };
    let mut asked: Vec<Setting> = Vec::new();
    for proposal in &profile.proposals {
        // The grid compares with FP32, so FP32 itself has no change.
        let large = !proposal.predicted.is_empty() && proposal.setting != Setting::FP32;
        if large && !asked.contains(&proposal.setting) {
            asked.push(proposal.setting);
            add("proposed", proposal.setting, proposal.predicted().map(|at| at.hit_rate(proposal.setting.policy)));
        }
    }
    let no_worse =
        cells.iter().filter(|cell| cell.figure(LOSS_CHANGE).and_then(|change| change.no_worse()) == Some(true));
    let sizes = no_worse.filter_map(|cell| Some((cell.mean("memory by formula")?, cell.setup.rows()?)));
    if let Some((_, setting)) = sizes.min_by(|a, b| a.0.total_cmp(&b.0)) {
        add("smallest no worse", setting, None);
    }
    report::table(&found, &["which", "setting", "no worse than FP32"], "what").unwrap_or_default()
}

#[cfg(test)]
mod tests;
