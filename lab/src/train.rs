//! `hotrow train`: the loss that low precision costs and a cache gives back (Yang 2020, Zhang 2018), and the steps that fewer bytes cost
//! (ROBE).
//!
//! Every mode makes runs of a [`task`] with a [`journal`] and shows them: as a comparison of settings or batch sizes ([`compare`]), a
//! [`grid`] of settings, steps [`until`] a loss, or a [`profile`] of the tables.

mod asked;
mod charts;
mod checkpoints;
mod compare;
mod dense;
mod figures;
mod grid;
mod journal;
mod metrics;
mod options;
mod profile;
mod ranks;
mod run;
mod scaling;
mod setting;
mod skew;
mod tables;
mod task;
mod tasks;
mod together;
mod training;
mod until;

pub(crate) use options::Args;
pub use together::OverRanks;

use hotrow_cli::failure::Failure;
use hotrow_cli::options::Options;
use hotrow_cli::output;
use options::Mode;
use std::path::Path;

pub(crate) fn run(options: &Options, args: &Args) -> Result<(), Failure> {
    let (plots, out) = match &args.mode {
        None => (args.compare.plots, &args.compare.out),
        Some(Mode::Grid(args)) => (args.plots, &args.out),
        Some(Mode::Until(args)) => (args.plots, &args.out),
        Some(Mode::Profile(_)) => (false, &None),
    };
    if let Some(folder) = out.as_deref().filter(|_| plots) {
        return redraw(options, folder);
    }
    match &args.mode {
        None => compare::run(options, &args.compare),
        Some(Mode::Grid(args)) => grid::run(options, args),
        Some(Mode::Profile(args)) => profile::run(options, args),
        Some(Mode::Until(args)) => until::run(options, args),
    }
}

/// Draws the results in a folder again: a grid's runs, the results of `until`, or both. If there are both, `--json` gets the grid.
fn redraw(options: &Options, folder: &Path) -> Result<(), Failure> {
    output::check_inside(folder, options.json.as_deref())?;
    let grid = folder.join(journal::FILE).exists();
    if until::redraw(options.json.as_deref().filter(|_| !grid), folder)? && !grid {
        return Ok(());
    }
    grid::redraw(options, folder)
}
