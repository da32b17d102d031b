//! `hotrow train --grid` and `--plots`.

use super::super::cells::Cells;
use super::super::charts;
use super::super::fingerprint::fingerprint;
use super::super::options::Args;
use super::super::record::{self, Record, Subject};
use super::super::report::Report;
use super::super::run::{self, RunOptions};
use super::super::setting::{Choice, Setting, WAYS};
use super::super::skew::{self, Uses};
use super::super::tables::{Device, Rule};
use super::super::task::Task;
use super::super::tasks::TaskName;
use super::Plan;
use crate::failure::Failure;
use crate::names::option_name;
use crate::options::Options;
use crate::output;
use anyhow::anyhow;
use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::Path;
use std::thread;

/// Most accesses that are counted for the chart of the skew.
const COUNTED: u64 = 1 << 25;

/// Runs what is missing of a grid, then writes its tables and charts. A run that failed makes the exit code 1, at the end.
pub(crate) fn run(
    options: &Options,
    args: &Args,
    name: TaskName,
    task: &dyn Task,
    run_options: &RunOptions,
) -> Result<(), Failure> {
    let folder = args.grid.folder(&option_name(&name));
    let plan = Plan {
        subject: subject(name, task, run_options),
        cells: cells(args, name, run_options)?,
        seeds: args.seeds(options.seed),
        jobs: jobs(args, run_options),
    };
    output::note(&format!(
        "{}; {} cells x {} seeds, {} runs at a time, kept in {}",
        task.source(),
        plan.cells.len(),
        plan.seeds.len(),
        plan.jobs,
        folder.join(record::FILE).display()
    ));
    let one =
        |setting: &Setting, seed| run::run(task, &Choice::uniform(*setting, task.tables()), seed, run_options, &|_| ());
    let records = super::run(&plan, &folder, &one)?;
    let uses = uses(task, run_options, options.seed);
    skew::chart(task.name(), &uses.iter().collect::<Vec<&Uses>>()).write(&folder.join("skew"))?;
    show(options, &plan.subject, &records, &folder)
}

/// Tables and charts of the runs in a folder.
pub(crate) fn redraw(options: &Options, folder: &Path) -> Result<(), Failure> {
    // Before the latest of each run is taken: a run of another subject would hide this one's.
    let records = record::load(folder)?;
    let Some(subject) = record::common(&records, folder)? else {
        return Err(anyhow!(
            "{}: wanted the runs of a grid or what --until-full found, found neither; run `hotrow train --grid --out {0}` first, or with \
             --until-full N",
            folder.display()
        )
        .into());
    };
    show(options, &subject, &record::latest(records), folder)
}

fn show(options: &Options, subject: &Subject, records: &[Record], folder: &Path) -> Result<(), Failure> {
    let report = Report::new(subject, records);
    report.write(folder)?;
    if let Some(path) = &options.json {
        output::write_json(path, &report)?;
    }
    let drawn = charts::write(&report, folder)?.len();
    output::print(&report.markdown())?;
    output::note(&format!("grid.csv, grid.json, grid.md and {drawn} pictures are in {}", folder.display()));
    match report.failures.len() {
        0 => Ok(()),
        failed => Err(anyhow!(
            "{failed} of {} runs failed; they are listed above and in {}, and the same command tries them again",
            records.len(),
            folder.join("grid.md").display()
        )
        .into()),
    }
}

fn cells(args: &Args, name: TaskName, run_options: &RunOptions) -> Result<Vec<Setting>, Failure> {
    let which = args.grid.cells.unwrap_or(if name == TaskName::Author { Cells::Full } else { Cells::Claims });
    let mut cells = which.settings(&args.lists());
    if matches!(run_options.device, Device::Gpu(_)) {
        let before = cells.len();
        cells.retain(|cell| cell.ways == WAYS);
        if cells.len() < before {
            output::note(&format!(
                "{} cells of other than {WAYS} ways are left out: the GPU's kernels know no other; take --backend cpu",
                before - cells.len()
            ));
        }
    }
    if cells.len() < 2 {
        return Err(Failure::Usage(
            "--grid: wanted cells beside FP32, found none with these precisions, roundings, policies, cache sizes and \
             ways; take --cells full, or leave some of them out"
                .to_owned(),
        ));
    }
    Ok(cells)
}

/// How many runs at a time: a GPU does one.
pub(crate) fn jobs(args: &Args, run_options: &RunOptions) -> usize {
    let cores = || match run_options.device {
        Device::Cpu => thread::available_parallelism().map_or(1, NonZero::get),
        Device::Gpu(_) => 1,
    };
    args.grid.jobs.map_or_else(cores, |jobs| jobs as usize)
}

/// Everything beside setting and seed that a run's result depends on.
pub(crate) fn subject(name: TaskName, task: &dyn Task, run_options: &RunOptions) -> Subject {
    // Field by field, so that none that is added later is forgotten. No grid is trained by the clock.
    let RunOptions { batch, epochs, seconds: _, rule: Rule { optimizer, lr }, dense_lr, decay, limit, scaling, device } =
        run_options;
    let mut dims: Vec<String> = task.tables().iter().map(|table| table.dim.to_string()).collect();
    dims.dedup();
    let backend = match device {
        Device::Cpu => "cpu",
        Device::Gpu(_) => "gpu",
    };
    let hyper = [
        ("backend", backend.to_owned()),
        ("batch", batch.to_string()),
        ("data", task.source()),
        ("decay", decay.to_string()),
        ("loss_scale", scaling.to_string()),
        ("dense lr", dense_lr.to_string()),
        ("dim", dims.join(" ")),
        ("epochs", epochs.to_string()),
        ("limit", limit.map_or_else(|| "none".to_owned(), |limit| limit.to_string())),
        ("lr", lr.to_string()),
        ("optimizer", option_name(optimizer)),
    ];
    let hyper: BTreeMap<String, String> = hyper.map(|(name, value)| (name.to_owned(), value)).into();
    Subject { task: option_name(&name), hyper, fingerprint: Some(fingerprint(task)) }
}

/// How often each row of each table is used over the first epoch, or its beginning.
fn uses(task: &dyn Task, run_options: &RunOptions, seed: u64) -> Vec<Uses> {
    let mut uses: Vec<Uses> = task.tables().iter().map(|table| Uses::new(&table.name, table.rows)).collect();
    let mut counted = 0;
    for samples in run::order(run_options.samples(task), seed, 0).chunks(run_options.batch) {
        let batch = task.train_batch(samples, seed, 0);
        for (uses, bags) in uses.iter_mut().zip(&batch.bags) {
            uses.count(&bags.indices);
            counted += bags.indices.len() as u64;
        }
        if counted > COUNTED {
            break;
        }
    }
    uses
}
