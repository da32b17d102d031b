//! Fewer bytes, more steps (P4): each setting trained until it reaches the loss of the full FP32 table, and what that takes.
//!
//! Each setting chooses its rate by short runs. The full table is trained for so many steps; its lowest test loss, tested every so many
//! steps, is the goal, and the step at which it comes there what the others' steps are compared with. Rates do not go down. Steps are
//! timed afterwards, the settings by turns, so that what else the machine does slows all of them alike.

pub(crate) mod options;
mod report;

use super::compare::labelled;
use super::course::{Course, Took};
use super::grid::command::jobs;
use super::options::Args;
use super::run::RunOptions;
use super::setting::Choice;
use super::task::Task;
use super::workers::side_by_side;
use crate::failure::Failure;
use crate::options::Options;
use crate::output;
use crate::progress::Progress;
use anyhow::{Context as _, ensure};
use report::{Followed, Report, Row, Tried};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Rates that are tried, as multiples of the task's own.
const RATES: [f32; 3] = [1.0 / 3.0, 1.0, 3.0];

/// Tests of the full table, where nothing else is asked for.
const TESTS: u64 = 40;

/// Rounds of timing, of which each setting has so many steps in a row; the first round warms up.
const ROUNDS: usize = 9;
const IN_A_ROW: usize = 10;

/// How far and how often.
struct Plan<'a> {
    task: &'a dyn Task,
    options: &'a RunOptions,
    /// Steps of the full table.
    goal_steps: u64,
    /// Steps of any other.
    most: u64,
    every: u64,
    /// Samples of a test.
    tested: usize,
    progress: &'a Progress,
}

/// Trains what was asked for beside the full table, and prints what came of it.
pub(crate) fn run(
    options: &Options,
    args: &Args,
    times: u32,
    task: &dyn Task,
    run_options: &RunOptions,
) -> Result<(), Failure> {
    let (_, kinds) = args.kinds();
    if kinds.is_empty() && args.table.is_empty() {
        return Err(Failure::Usage(
            "--until-full: wanted settings to compare with the full table, found none; give --table robe:compression=100, say"
                .to_owned(),
        ));
    }
    if args.decay == Some(true) {
        return Err(Failure::Usage(
            "--decay: wanted constant rates with --until-full, found true; how many steps there will be is not known before".to_owned(),
        ));
    }
    let choices = labelled(args, task.tables(), run_options.rule)?;
    // Before hours of training, not after.
    if let Some(folder) = args.grid.out() {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("{}: wanted a folder for the results", folder.display()))?;
    }
    let run_options = &RunOptions { decay: false, ..run_options.clone() };
    let until = &args.until;
    let goal_steps = until.goal_steps.unwrap_or_else(|| run_options.steps(task));
    let every = until.test_every.unwrap_or((goal_steps / TESTS).max(1)).min(goal_steps);
    let lr = run_options.rule.lr;
    let rates = if until.rates.is_empty() { RATES.map(|times| times * lr).to_vec() } else { until.rates.clone() };
    let seeds = args.seeds(options.seed);
    let short = (goal_steps / 2).max(1);
    // Of --epochs and a large --limit there may be more than --goal-steps takes; nobody waits for so many.
    let most = goal_steps.saturating_mul(u64::from(times));
    let tries = if rates.len() > 1 { (rates.len() as u64 * choices.len() as u64).saturating_mul(short) } else { 0 };
    let each = most.saturating_mul(choices.len() as u64 - 1).saturating_add(goal_steps);
    let runs = each.saturating_mul(seeds.len() as u64);
    let progress = &Progress::new(task.name(), tries.saturating_add(runs));
    let plan = &Plan { task, options: run_options, goal_steps, most, every, tested: until.tested as usize, progress };
    let at_once = jobs(args, run_options);

    let mut rows: Vec<Row> = choices.iter().map(|(label, _)| Row::new(label.clone())).collect();
    let mut tries: Vec<(usize, f32)> = Vec::new();
    for at in 0..choices.len() {
        tries.extend(rates.iter().map(|&rate| (at, rate)));
    }
    let tried =
        side_by_side(&tries, at_once, |&(at, rate)| alone(|| plan.try_out(&choices[at].1, seeds[0], rate, short)));
    for (&(at, rate), loss) in tries.iter().zip(tried) {
        rows[at].rates.push(Tried { rate, loss: loss.with_context(|| choices[at].0.clone())? });
    }
    for row in &mut rows {
        row.rate = row.best()?;
    }

    // The full table first: its losses are the others' goals.
    let full = side_by_side(&seeds, at_once, |&seed| alone(|| plan.full(&choices[0].1, seed, rows[0].rate)));
    rows[0].runs = full.into_iter().collect::<anyhow::Result<_>>()?;
    let mut left: Vec<(usize, Followed)> = Vec::new();
    for at in 1..choices.len() {
        left.extend(rows[0].runs.iter().map(|full| (at, full.clone())));
    }
    let found = side_by_side(&left, at_once, |(at, full)| {
        alone(|| plan.follow(&choices[*at].1, full, rows[*at].rate)).with_context(|| choices[*at].0.clone())
    });
    for ((at, _), run) in left.iter().zip(found) {
        rows[*at].runs.push(run?);
    }
    let chosen: Vec<(&Choice, f32)> = choices.iter().zip(&rows).map(|((_, choice), row)| (choice, row.rate)).collect();
    for (row, took) in rows.iter_mut().zip(alone(|| plan.clock(&chosen, seeds[0]))?) {
        row.timed(&took);
    }

    let report = Report::new(plan, short, &seeds, rows);
    output::print(&report.markdown())?;
    if let Some(path) = &options.json {
        output::write_json(path, &report)?;
    }
    if let Some(folder) = args.grid.out() {
        told(report.write(folder)?);
    }
    Ok(())
}

/// The pictures of what was found in a folder, drawn again, and all of it into `json`; false: there is no such thing.
pub(crate) fn redraw(json: Option<&Path>, folder: &Path) -> anyhow::Result<bool> {
    let Some(report) = Report::read(folder)? else { return Ok(false) };
    if let Some(path) = json {
        output::write_json(path, &report)?;
    }
    told(report.draw(folder)?);
    Ok(true)
}

fn told(pictures: Vec<PathBuf>) {
    for picture in pictures {
        output::note(&format!("picture: {}", picture.display()));
    }
}

/// On one thread, as runs are.
fn alone<T: Send>(work: impl FnOnce() -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
    rayon::ThreadPoolBuilder::new().num_threads(1).build()?.install(work)
}

impl<'a> Plan<'a> {
    fn course(&self, choice: &Choice, seed: u64, rate: f32) -> anyhow::Result<Course<'a>> {
        Course::new(self.task, choice, seed, self.options, rate)
    }

    /// The test loss after a short run; none, if a loss is not finite.
    fn try_out(&self, choice: &Choice, seed: u64, rate: f32, steps: u64) -> anyhow::Result<Option<f64>> {
        let mut course = self.course(choice, seed, rate)?;
        for _ in 0..steps {
            if !course.step()?.0.is_finite() {
                return Ok(None);
            }
            self.progress.advance(1);
        }
        Ok(Some(course.test(self.tested)?).filter(|loss| loss.is_finite()))
    }

    /// The full table for its steps, and how far it comes.
    fn full(&self, choice: &Choice, seed: u64, rate: f32) -> anyhow::Result<Followed> {
        let mut course = self.course(choice, seed, rate)?;
        let mut run = Followed::new(seed, course.memory());
        self.train(&mut course, &mut run, self.goal_steps, f64::NEG_INFINITY)?;
        run.goal = run.lowest();
        run.reached = run.first_at_most(run.goal);
        Ok(run)
    }

    /// Another setting, until it is where `full` was.
    fn follow(&self, choice: &Choice, full: &Followed, rate: f32) -> anyhow::Result<Followed> {
        let mut course = self.course(choice, full.seed, rate)?;
        let mut run = Followed { goal: full.goal, ..Followed::new(full.seed, course.memory()) };
        self.train(&mut course, &mut run, self.most, full.goal)?;
        run.reached = run.first_at_most(run.goal);
        // Where the full table stopped, if it stopped before.
        if course.steps < self.goal_steps {
            self.train(&mut course, &mut run, self.goal_steps, f64::NEG_INFINITY)?;
        }
        self.progress.advance(self.most.saturating_sub(course.steps));
        Ok(run)
    }

    /// Trains until so many steps, or a test loss of `goal`.
    fn train(&self, course: &mut Course<'_>, run: &mut Followed, steps: u64, goal: f64) -> anyhow::Result<()> {
        while course.steps < steps {
            let (loss, _) = course.step()?;
            ensure!(
                loss.is_finite(),
                "step {}: wanted a finite loss, found {loss}; give lower --rates or a lower --dense-lr",
                course.steps
            );
            self.progress.advance(1);
            if course.steps.is_multiple_of(self.every) || course.steps == steps {
                let loss = course.test(self.tested)?;
                run.curve.push((course.steps, loss));
                if loss <= goal {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Steps of every setting, by turns.
    fn clock(&self, choices: &[(&Choice, f32)], seed: u64) -> anyhow::Result<Vec<Vec<Took>>> {
        let courses = choices.iter().map(|&(choice, rate)| self.course(choice, seed, rate));
        let mut courses = courses.collect::<anyhow::Result<Vec<_>>>()?;
        let mut took = vec![Vec::new(); courses.len()];
        for round in 0..ROUNDS {
            for (course, took) in courses.iter_mut().zip(&mut took) {
                for _ in 0..IN_A_ROW {
                    let (_, one) = course.step()?;
                    if round > 0 {
                        took.push(one);
                    }
                }
            }
        }
        Ok(took)
    }
}

/// The one in the middle.
fn median(mut all: Vec<Duration>) -> Duration {
    all.sort_unstable();
    all.get(all.len() / 2).copied().unwrap_or_default()
}
