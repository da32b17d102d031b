//! Every cell of a grid for every seed: runs what is missing in a folder, and writes its tables and charts.

mod report;

use super::asked::Cells;
use super::checkpoints::Keep;
use super::journal::{self, Journal, Run};
use super::options::GridArgs;
use super::setting::{Setup, WAYS};
use super::skew;
use super::tables::Device;
use super::tasks::TaskName;
use super::training::Training;
use crate::failure::Failure;
use crate::options::Options;
use crate::output;
use anyhow::anyhow;
use report::Report;
use std::path::Path;

/// Runs what is missing of a grid, then writes its tables and charts. A run that failed makes the exit code 1, at the end.
pub(super) fn run(options: &Options, args: &GridArgs) -> Result<(), Failure> {
    args.run.check(options, [])?;
    let training = Training::open(options, &args.run, args.size.batch)?;
    let folder = training.folder(args.out.as_deref());
    let setups = setups(args, &training)?;
    output::note(&format!(
        "{}; {} cells x {} seeds, {} runs at a time, kept in {}",
        training.task.about().source,
        setups.len(),
        training.seeds.len(),
        training.jobs,
        folder.join(journal::FILE).display()
    ));
    let subject = training.subject();
    let journal = Journal::open(&folder, subject.clone())?;
    let runs = in_order(&setups, &training.seeds);
    let left = journal.missing(&runs);
    let progress = training.progress(&left);
    let one = |setup: &Setup, seed| training.run(setup, seed, &Keep::default(), &|steps| progress.advance(steps));
    journal.run(&left, training.jobs, &one)?;
    drop(progress);
    skew::chart(&training)?.write(&folder.join("skew"))?;
    show(options, &Report::new(&subject, &journal.last(&runs)), &folder)
}

/// Tables and charts of the runs in a folder.
pub(super) fn redraw(options: &Options, folder: &Path) -> Result<(), Failure> {
    // Before the latest of each run is taken: a run of another subject would hide this one's.
    let records = journal::load(folder)?;
    let Some(subject) = journal::common(&records, folder)? else {
        return Err(anyhow!(
            "{0}: wanted the runs of a grid or the results of `train until`, found neither; run `hotrow train grid --out {0}` or \
             `hotrow train until N --out {0}` first",
            folder.display()
        )
        .into());
    };
    show(options, &Report::new(&subject, &journal::latest(records)), folder)
}

fn show(options: &Options, report: &Report, folder: &Path) -> Result<(), Failure> {
    report.write(folder)?;
    if let Some(path) = &options.json {
        report.write_json(path)?;
    }
    let drawn = report.draw(folder)?.len();
    output::print(&report.markdown())?;
    output::note(&format!("grid.csv, grid.json, grid.md and {drawn} pictures are in {}", folder.display()));
    match report.failures.len() {
        0 => Ok(()),
        failed => Err(anyhow!(
            "{failed} of {} runs failed; they are listed above and in {}, and the same command tries them again",
            report.runs,
            folder.join("grid.md").display()
        )
        .into()),
    }
}

/// The cells that were asked for, FP32 among them.
fn setups(args: &GridArgs, training: &Training) -> Result<Vec<Setup>, Failure> {
    let by_task = if training.name == TaskName::Author { Cells::Full } else { Cells::Claims };
    let mut cells = args.cells.unwrap_or(by_task).settings(&args.lists);
    if matches!(training.options.device, Device::Gpu(_)) {
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
            "grid: wanted cells beside FP32, found none with these precisions, roundings, policies, cache sizes and \
             ways; take --cells full, or leave some of them out"
                .to_owned(),
        ));
    }
    Ok(cells.into_iter().map(Setup::from).collect())
}

/// FP32 first, then seed by seed, so that a grid cut short has all its cells.
fn in_order(setups: &[Setup], seeds: &[u64]) -> Vec<Run> {
    let (first, others): (Vec<&Setup>, Vec<&Setup>) = setups.iter().partition(|&setup| *setup == Setup::FP32);
    let of = |setups: Vec<&Setup>| -> Vec<Run> {
        let with = |&seed: &u64| setups.iter().map(move |&setup| (setup.clone(), seed)).collect::<Vec<Run>>();
        seeds.iter().flat_map(with).collect()
    };
    [of(first), of(others)].concat()
}

#[cfg(test)]
pub(super) mod tests;
