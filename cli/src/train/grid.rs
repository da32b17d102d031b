//! Runs the cells of a grid for every seed, several at a time, and remembers what is done.

pub(crate) mod command;
pub(crate) mod options;

use super::outcome::Outcome;
use super::record::{self, Journal, Record, Subject};
use super::setting::Setting;
use crate::progress::Progress;
use anyhow::{Context, anyhow};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

/// What is to be run.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) subject: Subject,
    /// FP32 among them.
    pub(crate) cells: Vec<Setting>,
    pub(crate) seeds: Vec<u64>,
    /// Runs at a time, each on a core of its own.
    pub(crate) jobs: usize,
}

impl Plan {
    /// Every run: FP32 first, then seed by seed, so that a grid cut short has all its cells.
    fn runs(&self) -> Vec<(Setting, u64)> {
        let (first, others): (Vec<&Setting>, Vec<&Setting>) =
            self.cells.iter().partition(|&&cell| cell == Setting::FP32);
        let each = |cells: Vec<&Setting>| -> Vec<(Setting, u64)> {
            self.seeds
                .iter()
                .flat_map(|&seed| cells.iter().map(move |&&cell| (cell, seed)).collect::<Vec<_>>())
                .collect()
        };
        let mut runs = each(first);
        runs.extend(each(others));
        runs
    }
}

/// Does one run: of a setting, with a seed.
pub(crate) type Runner<'a> = dyn Fn(&Setting, u64) -> anyhow::Result<Outcome> + Sync + 'a;

/// Runs what is not in `folder` yet, and returns the last record of every run of the plan. A run that fails is recorded, the others go on;
/// the next time it is tried again.
pub(crate) fn run(plan: &Plan, folder: &Path, runner: &Runner<'_>) -> anyhow::Result<Vec<Record>> {
    let (journal, mut records) = Journal::open(folder, &plan.subject)?;
    let all = plan.runs();
    let done = |run: &(Setting, u64)| {
        records.iter().any(|record| (record.setting, record.seed) == *run && record.outcome.is_some())
    };
    let left: Vec<(Setting, u64)> = all.iter().copied().filter(|run| !done(run)).collect();
    let progress = Progress::new(&format!("{}, {} runs", plan.subject.task, left.len()), left.len() as u64);
    records.extend(run_each(plan, &left, &journal, &progress, runner)?);
    let mut latest = record::latest(records);
    let place = |record: &Record| all.iter().position(|run| *run == (record.setting, record.seed));
    latest.retain(|record| place(record).is_some());
    latest.sort_by_key(place);
    Ok(latest)
}

fn run_each(
    plan: &Plan,
    runs: &[(Setting, u64)],
    journal: &Journal,
    progress: &Progress,
    runner: &Runner<'_>,
) -> anyhow::Result<Vec<Record>> {
    let next = AtomicUsize::new(0);
    let records = Mutex::new(Vec::new());
    let worker = || -> anyhow::Result<()> {
        // What a run does in parallel stays on its own core.
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().context("a thread for the grid's runs")?;
        while let Some(&(setting, seed)) = runs.get(next.fetch_add(1, Relaxed)) {
            let result = catch_unwind(AssertUnwindSafe(|| pool.install(|| runner(&setting, seed))));
            let (outcome, failure) = match result.unwrap_or_else(|panic| Err(anyhow!("panic: {}", said(&*panic)))) {
                // Not a number has no place in JSON, nor in a mean.
                Ok(outcome) if !outcome.loss.is_finite() => (None, Some(format!("test loss {}", outcome.loss))),
                Ok(outcome) => (Some(outcome), None),
                Err(error) => (None, Some(format!("{error:#}"))),
            };
            let record = Record { subject: plan.subject.clone(), setting, seed, outcome, failure };
            let added = journal.add(&record);
            if added.is_err() {
                // Runs that cannot be kept are not worth their time.
                next.store(runs.len(), Relaxed);
            }
            added?;
            records.lock().map_err(|_| anyhow!("another run's bookkeeping failed"))?.push(record);
            progress.advance(1);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..plan.jobs.clamp(1, runs.len().max(1))).map(|_| scope.spawn(worker)).collect();
        let ends =
            workers.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| Err(anyhow!("{}", said(&*panic)))));
        ends.collect::<anyhow::Result<Vec<()>>>()
    })?;
    records.into_inner().map_err(|_| anyhow!("a run's bookkeeping failed"))
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given")
}

#[cfg(test)]
mod tests;
