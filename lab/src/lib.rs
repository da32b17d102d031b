//! The laboratory of hotrow: experiments that train on its tables. An experiment is data, in a file or on the command line.

mod checkpoints;
mod dense;
mod experiment;
mod figures;
mod growth;
mod metrics;
mod over_ranks;
mod ranks;
mod report;
mod run;
mod runs;
mod scaling;
mod setting;
mod skew;
mod tables;
mod task;
mod tasks;

pub use over_ranks::OverRanks;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use experiment::{Experiment, Flags};
use hotrow_cli::failure::Failure;
use hotrow_cli::options::{Options, whole};
use hotrow_cli::output;
use runs::{Lab, RunArgs};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Trains on embedding tables in low precision, and compares losses, memory and steps.
#[derive(Debug, Parser)]
#[command(name = "hotrow-lab", version, propagate_version = true)]
struct Cli {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run an experiment from a file; what is in --out is not run again
    Run(FileArgs),
    /// Run an experiment of the options below, which are the keys of a file
    Train(TrainArgs),
}

#[derive(Debug, clap::Args)]
struct FileArgs {
    /// The experiment, such as lab/experiments/yang-2020.toml
    file: PathBuf,
    /// Parts of the file [default: all]
    #[arg(long, value_name = "PART[,PART]", value_delimiter = ',')]
    only: Vec<String>,
    /// End each run after N steps, to try the experiment
    #[arg(long, value_name = "N", value_parser = whole(1..=u64::MAX))]
    steps: Option<u64>,
    #[command(flatten)]
    args: RunArgs,
}

#[derive(Debug, clap::Args)]
struct TrainArgs {
    #[command(flatten)]
    args: RunArgs,
    #[command(flatten)]
    flags: Flags,
}

/// Runs the command with the arguments of the process.
#[must_use]
pub fn main() -> ExitCode {
    let Cli { options, command } = Cli::parse();
    let run = || match &command {
        Command::Run(args) => run_file(&options, args),
        Command::Train(TrainArgs { args, flags }) => {
            let experiment = flags.experiment().map_err(|error| Failure::Usage(format!("{error:#}")))?;
            args.check(&options, &experiment)?;
            one("train", &experiment, &options, args, args.folder())
        }
    };
    run().map_or_else(|failure| failure.report(), |()| ExitCode::SUCCESS)
}

/// Runs the parts of a file, each in a folder of its own. Parts that fail do not hold up the others.
fn run_file(options: &Options, asked: &FileArgs) -> Result<(), Failure> {
    let FileArgs { file, only, steps, args } = asked;
    let name = file.display();
    let text = fs::read_to_string(file).with_context(|| format!("{name}: wanted the file of an experiment"))?;
    let mut parts = Experiment::read(&text).map_err(|error| Failure::Usage(format!("{name}: {error:#}")))?;
    if let Some(unknown) = only.iter().find(|part| !parts.contains_key(*part)) {
        let known = parts.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        return Err(Failure::Usage(format!("--only: wanted parts of {name}, which has {known}, found {unknown}")));
    }
    parts.retain(|part, _| only.is_empty() || only.contains(part));
    if options.json.is_some() && parts.len() > 1 {
        return Err(Failure::Usage(format!("--json: wanted one part (--only PART), found {}", parts.len())));
    }
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let out = args.folder().map_or_else(|| PathBuf::from(format!("lab-{stem}")), Path::to_owned);
    let mut failed = Ok(());
    for (part, experiment) in &mut parts {
        steps.iter().for_each(|&steps| experiment.end.shorten(steps));
        args.check(options, experiment)?;
        output::print(&format!("# {stem}, {part}\n"))?;
        let folder = out.join(part);
        match one(part, experiment, options, args, Some(&folder)) {
            Err(Failure::Job(error)) if !error.is::<hotrow_cli::failure::Closed>() => {
                output::note(&format!("{part}: {error:#}"));
                failed = Err(Failure::Job(error.context(part.clone())));
            }
            done => done?,
        }
    }
    failed
}

/// Runs a part of an experiment, and shows its results.
fn one(
    name: &str,
    experiment: &Experiment,
    options: &Options,
    args: &RunArgs,
    folder: Option<&Path>,
) -> Result<(), Failure> {
    if let Some(growth) = &experiment.growth {
        let (text, records) = growth.table()?;
        if let Some(folder) = folder {
            fs::create_dir_all(folder)?;
            hotrow_cli::report::write_csv(&folder.join("records.csv"), &records)?;
        }
        return Ok(output::print(&text)?);
    }
    let lab = Lab::open((name, experiment), (options, args), folder.map(Path::to_owned), None)?;
    lab.show(options, &lab.run()?)
}
