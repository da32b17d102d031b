//! `hotrow bench`: bandwidth against hit rate (Yang 2020, Figure 9); `bench suite` and `bench robe` measure kernels and shared tables.

mod robe;
mod runners;
mod shape;
mod suite;
mod sweep;
mod uvm;

use crate::failure::Failure;
use crate::options::Options;
use crate::output;
use crate::report::run::Run;
use hotrow::{Counters, Group};
use std::path::{Path, PathBuf};

/// Bandwidth against hit rate, forward and backward, for precisions x policies, with its bounds
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(flatten)]
    sweep: sweep::Args,
    #[command(subcommand)]
    mode: Option<Mode>,
}

#[derive(Debug, clap::Subcommand)]
enum Mode {
    Suite(suite::Args),
    Robe(robe::Args),
}

/// Options of every mode.
#[derive(Debug, clap::Args)]
struct Common {
    /// Folder for JSON, CSV, tables and plots
    #[arg(long, value_name = "DIR", default_value = "results")]
    out: PathBuf,
    /// Commit to put into the results [default: the environment's `HOTROW_COMMIT`, then and at build]
    #[arg(long, value_name = "HASH")]
    commit: Option<String>,
}

/// Runs the subcommand.
pub(crate) fn run(options: &Options, args: &Args) -> Result<(), Failure> {
    match &args.mode {
        None => sweep::run(options, &args.sweep),
        Some(Mode::Suite(args)) => suite::run(options, args),
        Some(Mode::Robe(args)) => robe::run(options, args),
    }
}

impl Common {
    /// Makes the folder of the results before minutes of measuring.
    fn make_folder(&self) -> Result<(), Failure> {
        output::check_folder("--out", &self.out)
    }

    /// A run of `command` without figures.
    fn start(&self, options: &Options, command: &'static str, size: &'static str) -> Run {
        Run::new(command, self.commit.as_deref(), options.seed, size)
    }

    /// Prints so many of the tables, writes all with JSON and CSV, and names the files.
    fn finish(
        &self,
        options: &Options,
        run: &Run,
        stem: &str,
        (tables, printed): (&[(String, Option<String>)], usize),
        charts: &[[PathBuf; 2]],
    ) -> anyhow::Result<()> {
        output::print(&run.markdown(&tables[..printed]))?;
        let markdown = self.out.join(stem).with_extension("md");
        output::write_file(&markdown, run.markdown(tables).as_bytes())?;
        let [json, csv] = run.write(&self.out.join(stem), options.json.as_deref())?;
        for [svg, png] in charts {
            output::print(&format!("wrote {} and {}", svg.display(), file_name(png)))?;
        }
        output::print(&format!("wrote {}, {} and {}", markdown.display(), csv.display(), json.display()))
    }
}

/// The counters of all tables.
fn total(group: &mut Group) -> anyhow::Result<Counters> {
    Ok(group.counters()?.into_iter().sum())
}

fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}
