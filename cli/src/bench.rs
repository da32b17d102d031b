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
use crate::report::{Select, table};
use std::path::PathBuf;

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
            let png = png.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
            output::print(&format!("wrote {} and {png}", svg.display()))?;
        }
        output::print(&format!("wrote {}, {} and {}", markdown.display(), csv.display(), json.display()))
    }
}

/// A table of a run: its title, which records it has, the names that make its lines, and the name that makes its columns.
struct Table {
    title: &'static str,
    records: Select<'static>,
    lines: &'static [&'static str],
    across: &'static str,
}

impl Table {
    /// The quantities of a shape side by side.
    const fn new(title: &'static str, shape: &'static str, lines: &'static [&'static str]) -> Self {
        Self { title, records: Select { what: "", shape, setting: "" }, lines, across: "what" }
    }

    fn draw(&self, run: &Run) -> (String, Option<String>) {
        (self.title.to_owned(), table(run.select(self.records), self.lines, self.across))
    }
}
