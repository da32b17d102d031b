//! Fewer bytes, more steps (ROBE): each setting trained until it reaches the loss of the full FP32 table, and the steps, bytes and time
//! that this takes.
//!
//! Each setting chooses its rate by short runs. The full table is trained for so many steps; its lowest test loss, tested every so many
//! steps, is the goal, and the step at which it comes there what the others' steps are compared with. Rates do not go down. Steps are
//! timed afterwards, the settings by turns, so that what else the machine does slows all of them alike.

mod report;

use super::compare;
use super::journal::{self, Journal, Record, alone};
use super::options::UntilArgs;
use super::run::{Model, Outcome, RunOptions};
use super::setting::Setup;
use super::training::Training;
use crate::failure::Failure;
use crate::options::Options;
use crate::output;
use crate::progress::Progress;
use crate::report::units::median;
use anyhow::{Context as _, ensure};
use report::{Followed, Limits, Report, Row, Tried};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Rates that are tried, as multiples of the task's own.
const RATES: [f32; 3] = [1.0 / 3.0, 1.0, 3.0];

/// Tests of the full table, where nothing else is asked for.
const TESTS: u64 = 40;

/// Rounds of timing, of which each setting has so many steps in a row; the first round warms up.
const ROUNDS: usize = 9;
const IN_A_ROW: usize = 10;

/// A training, and how far and how often it goes.
struct Plan<'a> {
    training: &'a Training,
    limits: Limits,
}

/// Trains the settings beside the full table, and prints the comparison.
pub(super) fn run(options: &Options, args: &UntilArgs) -> Result<(), Failure> {
    args.check(options)?;
    let mut training = Training::open(options, &args.run, args.size.batch)?;
    training.options.hyper.decay = false;
    let setups = compare::setups(&args.lists, &args.table, &training)?;
    if let Some(folder) = &args.out {
        output::check_folder("--out", folder)?;
    }
    let goal_steps = args.goal_steps.unwrap_or_else(|| training.options.steps(&*training.task));
    let limits = Limits {
        goal_steps,
        // Of --epochs and a large --limit there may be more than --goal-steps takes; nobody waits for so many.
        most_steps: goal_steps.saturating_mul(args.times.unwrap_or(1).into()),
        test_every: args.test_every.unwrap_or((goal_steps / TESTS).max(1)).min(goal_steps),
        tested: (args.tested as usize).min(training.task.about().test),
        short_steps: (goal_steps / 2).max(1),
    };
    let plan = Plan { training: &training, limits };
    let lr = training.options.hyper.lr;
    let rates = if args.rates.is_empty() { RATES.map(|times| times * lr).to_vec() } else { args.rates.clone() };

    let (mut rows, setups) = plan.rows(&setups, &rates)?;
    plan.follow(&setups, &mut rows)?;
    alone(|| plan.clock(&setups, &mut rows))?;

    let (about, hyper) = (training.task.about(), &training.options.hyper);
    let report = Report {
        task: about.name.to_owned(),
        data: about.source.clone(),
        batch: hyper.batch,
        optimizer: hyper.optimizer,
        dense_lr: hyper.dense_lr,
        limits,
        seeds: training.seeds.clone(),
        settings: rows,
        small: training.small(),
    };
    output::print(&report.markdown())?;
    if let Some(path) = &options.json {
        output::write_json(path, &report)?;
    }
    if let Some(folder) = &args.out {
        tell(report.write(folder)?);
    }
    Ok(())
}

/// Draws the results of a folder again, and writes them to `json`; false if the folder has none.
pub(super) fn redraw(json: Option<&Path>, folder: &Path) -> anyhow::Result<bool> {
    let Some(report) = Report::read(folder)? else { return Ok(false) };
    if let Some(path) = json {
        output::write_json(path, &report)?;
    }
    tell(report.draw(folder)?);
    Ok(true)
}

fn tell(pictures: Vec<PathBuf>) {
    for picture in pictures {
        output::note(&format!("picture: {}", picture.display()));
    }
}

/// The end of a run: its steps at most, the loss to reach, and the steps between tests.
#[derive(Clone, Copy)]
struct End {
    most: u64,
    goal: f64,
    every: u64,
}

impl Plan<'_> {
    /// A row for each setup, and the setups with the rates that short runs with the first seed chose.
    fn rows(&self, setups: &[Setup], rates: &[f32]) -> anyhow::Result<(Vec<Row>, Vec<Setup>)> {
        let with = |setup: &Setup, rate| Setup { rate: Some(rate), ..setup.clone() };
        let tries = setups.iter().flat_map(|setup| rates.iter().map(move |&rate| with(setup, rate)));
        let tries = journal::each(&tries.collect::<Vec<_>>(), &self.training.seeds[..1]);
        let short = self.limits.short_steps;
        let end = End { most: short, goal: f64::NEG_INFINITY, every: short };
        let progress = self.progress(tries.len(), short);
        let journal = Journal::new(self.training.subject());
        journal.run(&tries, self.training.jobs, &|setup, seed| self.train(setup, seed, end, &progress))?;
        let tried = journal.last(&tries);
        let chosen = setups.iter().zip(tried.chunks(rates.len())).map(|(setup, tried)| {
            let loss = |record: &Record| record.outcome.as_ref().map(|run| run.loss);
            let rates = tried.iter().zip(rates).map(|(record, &rate)| Tried { rate, loss: loss(record) }).collect();
            let mut row = Row { setting: setup.label(), rates, ..Row::default() };
            row.rate = row
                .best()
                .with_context(|| tried.iter().find_map(|record| record.failure.clone()).unwrap_or_default())?;
            let setup = with(setup, row.rate);
            Ok((row, setup))
        });
        Ok(chosen.collect::<anyhow::Result<Vec<_>>>()?.into_iter().unzip())
    }

    /// Trains the full table, which sets the goals; then every other setting until it is there.
    fn follow(&self, setups: &[Setup], rows: &mut [Row]) -> anyhow::Result<()> {
        let Training { seeds, jobs, .. } = self.training;
        let Limits { goal_steps, most_steps, test_every: every, .. } = self.limits;
        let (full, others) = (journal::each(&setups[..1], seeds), journal::each(&setups[1..], seeds));
        let journal = Journal::new(self.training.subject());
        let progress = self.progress(full.len(), goal_steps);
        let end = End { most: goal_steps, goal: f64::NEG_INFINITY, every };
        let mut records = journal.run_all(&full, *jobs, &|setup, seed| self.train(setup, seed, end, &progress))?;
        let lowest = |record: &Record| Some((record.seed, report::lowest(&record.outcome.as_ref()?.curve)));
        let goals: HashMap<u64, f64> = records.iter().filter_map(lowest).collect();
        let goal = |seed| goals.get(&seed).copied().unwrap_or(f64::NAN);
        let progress = self.progress(others.len(), most_steps);
        records.extend(journal.run_all(&others, *jobs, &|setup, seed| {
            self.train(setup, seed, End { most: most_steps, goal: goal(seed), every }, &progress)
        })?);
        for (row, records) in rows.iter_mut().zip(records.chunks(seeds.len())) {
            let run = |record: &Record| Some(Followed::new(record.seed, goal(record.seed), record.outcome.clone()?));
            row.runs = records.iter().filter_map(run).collect();
        }
        Ok(())
    }

    /// Trains until the test loss is at the goal, but at least as long as the full table; or for the most steps there are.
    fn train(&self, setup: &Setup, seed: u64, end: End, progress: &Progress) -> anyhow::Result<Outcome> {
        let start = Instant::now();
        let options = self.training.options_of(setup);
        let mut model = self.model(setup, seed, &options)?;
        let mut curve = Vec::new();
        let mut last = end.most;
        let score = loop {
            let (loss, _) = model.step()?;
            ensure!(
                loss.is_finite(),
                "step {}: wanted a finite loss, found {loss}; give lower --rates or a lower --dense-lr",
                model.steps
            );
            progress.advance(1);
            if model.steps.is_multiple_of(end.every) || model.steps == last {
                let score = model.test(self.limits.tested)?;
                curve.push((model.steps, score.loss));
                if score.loss <= end.goal {
                    last = last.min(self.limits.goal_steps.max(model.steps));
                }
                if model.steps >= last {
                    break score;
                }
            }
        };
        progress.advance(end.most.saturating_sub(model.steps));
        let kept_bytes = Some(model.kept_bytes());
        Ok(Outcome { kept_bytes, curve, ..model.outcome(score, f64::NAN, 0.0, start)? })
    }

    fn model<'m>(&'m self, setup: &Setup, seed: u64, options: &'m RunOptions) -> anyhow::Result<Model<'m>> {
        let choice = setup.choice(self.training.tables()).map_err(anyhow::Error::msg)?;
        Model::new(&*self.training.task, &choice, seed, options)
    }

    /// Times steps of every setting, by turns.
    fn clock(&self, setups: &[Setup], rows: &mut [Row]) -> anyhow::Result<()> {
        let options: Vec<RunOptions> = setups.iter().map(|setup| self.training.options_of(setup)).collect();
        let models =
            setups.iter().zip(&options).map(|(setup, options)| self.model(setup, self.training.seeds[0], options));
        let mut models = models.collect::<anyhow::Result<Vec<_>>>()?;
        let mut took = vec![Vec::new(); models.len()];
        for round in 0..ROUNDS {
            for (model, took) in models.iter_mut().zip(&mut took) {
                for _ in 0..IN_A_ROW {
                    let (start, before) = (Instant::now(), model.in_tables);
                    model.step()?;
                    if round > 0 {
                        took.push([start.elapsed(), model.in_tables - before]);
                    }
                }
            }
        }
        for (row, took) in rows.iter_mut().zip(&took) {
            let of = |at: usize| 1e3 * median(took.iter().map(|took: &[Duration; 2]| took[at].as_secs_f64()).collect());
            (row.step_ms, row.tables_ms) = (of(0), of(1));
        }
        Ok(())
    }

    fn progress(&self, runs: usize, steps: u64) -> Progress {
        Progress::new(self.training.task.about().name, steps.saturating_mul(runs as u64))
    }
}
