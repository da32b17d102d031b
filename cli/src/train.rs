//! `hotrow train`: what low precision costs, and what a cache gives back (P1 sections 4 and 5, P2); what fewer bytes cost in steps (P4).

mod batches;
mod cells;
mod charts;
mod claims;
mod compare;
mod course;
mod dense;
mod dots;
mod fingerprint;
mod grid;
mod ignored;
mod interval;
mod kept;
mod metrics;
mod mixed;
mod options;
mod outcome;
mod profile;
mod record;
mod report;
mod robe;
mod run;
mod scaling;
mod setting;
mod skew;
mod summary;
mod tables;
mod task;
mod tasks;
mod until;
mod workers;

pub(crate) use options::Args;

use crate::failure::Failure;
use crate::names::option_name;
use crate::options::{Backend, Options};
use hotrow::adapter;
use run::RunOptions;
use tables::{Device, Rule};
use task::Task;
use tasks::{Choices, TaskName};

/// Runs the subcommand.
pub(crate) fn run(options: &Options, args: &Args) -> Result<(), Failure> {
    let data = options.data();
    if let Some(folder) = args.grid.redraw() {
        // A folder may hold both: then --json takes the grid.
        let grid = folder.join(record::FILE).exists();
        if until::redraw(options.json.as_deref().filter(|_| !grid), folder)? && !grid {
            return Ok(());
        }
        return grid::command::redraw(options, folder);
    }
    let of_clicks = args.criteo.is_some() || args.cardinalities.is_some();
    let by_data = if data.is_some() && !of_clicks { TaskName::Author } else { TaskName::Dlrm };
    let name = args.task.unwrap_or(by_data);
    if of_clicks && name != TaskName::Dlrm {
        let name = option_name(&name);
        return Err(Failure::Usage(format!(
            "--criteo and --cardinalities: wanted --task dlrm, found {name}; leave them out, or --task"
        )));
    }
    let choices = Choices {
        data,
        dim: args.dim,
        sentences: args.sentences,
        criteo: args.criteo.clone(),
        cardinalities: args.cardinalities.clone(),
        limit: args.limit.map(|limit| limit as usize),
        seed: options.seed,
    };
    if !args.table.is_empty() && (args.grid.grid || args.grid.profile) {
        return Err(Failure::Usage(
            "--table: wanted neither --grid nor --profile beside it, found one: these choose the settings; leave --table out"
                .to_owned(),
        ));
    }
    batches::check(args)?;
    ignored::check(args, name)?;
    let task = tasks::open(name, &choices)?;
    let run_options = run_options(options, args, &*task)?;
    if args.grid.grid {
        return grid::command::run(options, args, name, &*task, &run_options);
    }
    if args.grid.profile {
        return profile::command::run(options, args, name, &*task, &run_options);
    }
    if let Some(times) = args.until.until_full {
        return until::run(options, args, times, &*task, &run_options);
    }
    if args.batch.len() > 1 {
        return batches::run(options, args, &*task, &run_options);
    }
    compare::run(options, args, &*task, &run_options)
}

fn run_options(options: &Options, args: &Args, task: &dyn Task) -> Result<RunOptions, Failure> {
    let device = match options.backend {
        Backend::Gpu => Device::Gpu(adapter::open_best(adapter::Wanted::Any)?),
        Backend::Cpu => Device::Cpu,
        Backend::Auto => adapter::open_best(adapter::Wanted::Hardware).map_or(Device::Cpu, Device::Gpu),
    };
    let defaults = task.defaults();
    Ok(RunOptions {
        batch: args.batch.first().map_or(defaults.batch, |&batch| batch as usize),
        epochs: args.epochs.unwrap_or(defaults.epochs),
        rule: Rule { optimizer: args.optimizer.unwrap_or(defaults.optimizer), lr: args.lr.unwrap_or(defaults.lr) },
        dense_lr: args.dense_lr.unwrap_or(defaults.dense_lr),
        decay: args.decay.unwrap_or(defaults.decay),
        seconds: args.seconds,
        limit: args.limit.map(|limit| limit as usize),
        scaling: args.loss_scale,
        device,
    })
}
