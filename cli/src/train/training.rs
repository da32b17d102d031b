//! A task, opened, and how its runs are done: what every mode begins with.

use super::checkpoints::Keep;
use super::fingerprint::fingerprint;
use super::journal::{Journal, Record, Run, Subject};
use super::options::RunArgs;
use super::outcome::Outcome;
use super::run::{self, RunOptions};
use super::setting::{Choice, SMALL_TABLE, Setup};
use super::tables::{Device, Rule};
use super::task::{TableSpec, Task};
use super::tasks::{self, TaskName};
use crate::failure::Failure;
use crate::names::{option_name, value_name};
use crate::options::{Backend, Options};
use crate::progress::Progress;
use crate::trace::Source;
use hotrow::adapter;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::thread;

/// A task and how to train on it.
pub(crate) struct Training {
    pub(crate) name: TaskName,
    pub(crate) task: Box<dyn Task>,
    pub(crate) options: RunOptions,
    pub(crate) seeds: Vec<u64>,
    /// Runs at a time.
    pub(crate) jobs: usize,
}

impl Training {
    /// Loads the task's data. Options that were not given are the task's own.
    pub(crate) fn open(options: &Options, args: &RunArgs, batch: Option<u32>) -> Result<Self, Failure> {
        let (name, data) = (args.task.name(options), options.data());
        let task = tasks::open(name, &args.task, &Source { data: data.as_deref(), seed: options.seed })?;
        let device = match options.backend {
            Backend::Gpu => Device::Gpu(adapter::open_best(adapter::Wanted::Any)?),
            Backend::Cpu => Device::Cpu,
            Backend::Auto => adapter::open_best(adapter::Wanted::Hardware).map_or(Device::Cpu, Device::Gpu),
        };
        let jobs = args.jobs.map_or_else(|| device.jobs(), |jobs| jobs as usize);
        let (defaults, first) = (task.about().defaults, options.seed);
        let options = RunOptions {
            batch: batch.map_or(defaults.batch, |batch| batch as usize),
            epochs: args.epochs.unwrap_or(defaults.epochs),
            rule: Rule { optimizer: args.optimizer.unwrap_or(defaults.optimizer), lr: args.lr.unwrap_or(defaults.lr) },
            dense_lr: args.dense_lr.unwrap_or(defaults.dense_lr),
            decay: args.decay.unwrap_or(defaults.decay),
            seconds: None,
            limit: args.task.limit(),
            scaling: args.loss_scale,
            device,
        };
        let seeds = (0..u64::from(args.seeds)).map(|k| first.wrapping_add(k)).collect();
        Ok(Self { name, task, options, seeds, jobs })
    }

    pub(crate) fn tables(&self) -> &[TableSpec] {
        &self.task.about().tables
    }

    /// Everything beside setup and seed that a run's result depends on.
    pub(crate) fn subject(&self) -> Subject {
        // Field by field, so that none that is added later is forgotten. What is trained by the clock is kept in memory alone.
        let RunOptions {
            batch,
            epochs,
            seconds: _,
            rule: Rule { optimizer, lr },
            dense_lr,
            decay,
            limit,
            scaling,
            device,
        } = &self.options;
        let mut dims: Vec<String> = self.tables().iter().map(|table| table.dim.to_string()).collect();
        dims.dedup();
        let hyper = [
            ("backend", device.name().to_owned()),
            ("batch", batch.to_string()),
            ("data", self.task.about().source.clone()),
            ("decay", decay.to_string()),
            ("loss_scale", scaling.to_string()),
            ("dense lr", dense_lr.to_string()),
            ("dim", dims.join(" ")),
            ("epochs", epochs.to_string()),
            ("limit", limit.map_or_else(|| "none".to_owned(), |limit| limit.to_string())),
            ("lr", lr.to_string()),
            ("optimizer", option_name(optimizer)),
        ];
        let hyper = hyper.map(|(name, value)| (name.to_owned(), value)).into();
        Subject { task: value_name(&self.name), hyper, fingerprint: Some(fingerprint(&*self.task)) }
    }

    /// The setting of each table in a run.
    pub(crate) fn choice(&self, setup: &Setup) -> Result<Choice, Failure> {
        setup.choice(self.tables()).map_err(Failure::Usage)
    }

    /// The options of a run of this setup.
    pub(crate) fn options_of(&self, setup: &Setup) -> RunOptions {
        let mut options = self.options.clone();
        options.batch = setup.batch.unwrap_or(options.batch);
        options.rule.lr = setup.rate.unwrap_or(options.rule.lr);
        options
    }

    /// Does a run; `watch` is told of every step.
    pub(crate) fn run(
        &self,
        setup: &Setup,
        seed: u64,
        keep: &Keep,
        watch: &(dyn Fn(u64) + Sync),
    ) -> anyhow::Result<Outcome> {
        let choice = setup.choice(self.tables()).map_err(anyhow::Error::msg)?;
        run::run(&*self.task, &choice, seed, &self.options_of(setup), keep, watch)
    }

    /// Does every run, several at a time, and keeps them in memory. After one has failed no other begins.
    pub(crate) fn run_all(
        &self,
        runs: &[Run],
        keep: &(dyn Fn(&Setup, u64) -> Keep + Sync),
    ) -> anyhow::Result<Vec<Record>> {
        let progress = self.progress(runs);
        let one = |setup: &Setup, seed| self.run(setup, seed, &keep(setup, seed), &|steps| progress.advance(steps));
        Journal::new(self.subject()).run_all(runs, self.jobs, &one)
    }

    /// A bar of the steps of these runs.
    pub(crate) fn progress(&self, runs: &[Run]) -> Progress {
        let steps = runs.iter().map(|(setup, _)| self.options_of(setup).steps(&*self.task)).sum();
        Progress::new(self.task.about().name, steps)
    }

    /// Where the results of a grid lie.
    pub(crate) fn folder(&self, out: Option<&Path>) -> PathBuf {
        out.map_or_else(|| PathBuf::from(format!("train-{}", value_name(&self.name))), Path::to_owned)
    }

    /// A line on the tables that stay as they are, whatever is asked for all.
    pub(crate) fn small(&self) -> String {
        let tables = self.tables();
        match tables.iter().filter(|table| table.rows <= SMALL_TABLE).count() {
            0 => String::new(),
            count => {
                format!("{count} of {} tables, of at most {SMALL_TABLE} rows, stay FP32 unless named\n", tables.len())
            }
        }
    }
}

impl Device {
    /// As it is written to the journal.
    const fn name(&self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Gpu(_) => "gpu",
        }
    }

    /// Runs at a time: a GPU does one.
    fn jobs(&self) -> usize {
        match self {
            Self::Cpu => thread::available_parallelism().map_or(1, NonZero::get),
            Self::Gpu(_) => 1,
        }
    }
}
