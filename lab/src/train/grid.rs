//! Every cell of a grid for every seed: makes the missing runs of a folder, and writes tables and charts.

mod report;

use super::asked::Cells;
use super::checkpoints::Keep;
use super::journal::{self, Journal, Run};
use super::options::GridArgs;
use super::run::End;
use super::setting::{Setup, WAYS};
use super::skew;
use super::tables::Device;
use super::tasks::TaskName;
use super::training::Training;
use hotrow_cli::failure::Failure;
use hotrow_cli::options::Options;
use hotrow_cli::output;
use anyhow::{Context as _, anyhow};
use report::Report;
use std::path::Path;

/// Makes the missing runs of a grid, then writes tables and charts. If a run failed, the exit code is 1 in the end.
pub(super) fn run(options: &Options, args: &GridArgs) -> Result<(), Failure> {
    args.run.check(options, [])?;
    if let Some(folder) = &args.out {
        output::check_folder(folder, options.json.as_deref())?;
    }
    let training = Training::open(options, &args.run, args.size.batch, None)?;
    let folder = training.folder(args.out.as_deref());
    output::check_inside(&folder, options.json.as_deref())?;
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
    training.run(&journal, &left, false, &|_, _| (End::Epochs, Keep::default()))?;
    skew::chart(&training)?.write(&folder.join("skew"))?;
    show(options, &Report::new(&subject, &journal.last(&runs)), &folder)
}

/// Writes tables and charts of the runs in a folder.
pub(super) fn redraw(options: &Options, folder: &Path) -> Result<(), Failure> {
    // Checked before the latest record of each run is selected, which could belong to another subject.
    let records = journal::load(folder)?;
    let subject = journal::common(&records, folder)?.with_context(|| {
        format!(
            "{0}: wanted the runs of a grid or the results of `train until`, found neither; run `hotrow train grid --out {0}` or \
             `hotrow train until N --out {0}` first",
            folder.display()
        )
    })?;
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
    let failed = report.failures.len();
    if failed > 0 {
        let list = folder.join("grid.md");
        return Err(Failure::Job(anyhow!(
            "{failed} of {} runs failed; they are listed above and in {}, and the same command tries them again",
            report.runs,
            list.display()
        )));
    }
    Ok(())
}

/// The cells of the options, and FP32.
fn setups(args: &GridArgs, training: &Training) -> Result<Vec<Setup>, Failure> {
    let by_task = if training.name == TaskName::Author { Cells::Full } else { Cells::Claims };
    let mut cells = args.cells.unwrap_or(by_task).settings(&args.lists);
    if matches!(training.options.device, Device::Gpu(_)) {
        let left_out = cells.extract_if(.., |cell| cell.ways != WAYS).count();
        if left_out > 0 {
            output::note(&format!(
                "{left_out} cells of other than {WAYS} ways are left out: the GPU's kernels know no other; take --backend cpu"
            ));
        }
    }
    if cells.len() < 2 {
        let given = "precisions, roundings, policies, cache sizes and ways";
        return Err(Failure::Usage(format!(
            "grid: wanted cells beside FP32, found none with these {given}; take --cells full, or leave some of them out"
        )));
    }
    Ok(cells.into_iter().map(Setup::from).collect())
}

/// FP32 first, then seed by seed, so that an interrupted grid has all its cells.
fn in_order(setups: &[Setup], seeds: &[u64]) -> Vec<Run> {
    let mut runs: Vec<(usize, Run)> = journal::each(setups, seeds).into_iter().enumerate().collect();
    let place = |&(at, (ref setup, _)): &(usize, Run)| (*setup != Setup::FP32, at % seeds.len());
    runs.sort_by_key(place);
    runs.into_iter().map(|(_, run)| run).collect()
}

#[cfg(test)]
pub(super) mod tests;
