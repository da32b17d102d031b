//! The options of `hotrow train` that are about many runs.

use super::super::cells::Cells;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub(crate) struct GridArgs {
    /// Run every cell of a grid for every seed; runs that lie in --out are not run again
    #[arg(long, conflicts_with = "profile")]
    pub(crate) grid: bool,
    /// Cells of the grid, which --precision, --rounding, --policy, --cache-percent and --ways narrow [default: full for author, else claims]
    #[arg(long, value_enum, requires = "grid")]
    pub(crate) cells: Option<Cells>,
    /// Propose precision, policy and cache share of each table, from its first accesses and short runs
    #[arg(long)]
    pub(crate) profile: bool,
    /// Draw the charts and tables of the runs that lie in --out again, the pictures of what --until-full found, and run nothing
    #[arg(long, requires = "out", conflicts_with_all = ["grid", "profile"])]
    plots: bool,
    /// Folder of a grid's runs, tables and charts [default: train-TASK]; of the chart of several --batch, of what --until-full finds; of the checkpoints of other
    /// runs
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Runs at a time, each on a core of its own [default: as many as there are cores; 1 on a GPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) jobs: Option<u32>,
}

impl GridArgs {
    /// Where the results of a task lie.
    pub(crate) fn folder(&self, task: &str) -> PathBuf {
        self.out.clone().unwrap_or_else(|| PathBuf::from(format!("train-{task}")))
    }

    /// Where results shall lie, if that was said.
    pub(crate) fn out(&self) -> Option<&Path> {
        self.out.as_deref()
    }

    /// The folder whose runs shall be drawn again.
    pub(crate) fn redraw(&self) -> Option<&Path> {
        self.out.as_deref().filter(|_| self.plots)
    }
}
