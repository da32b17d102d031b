//! The laboratory of hotrow: experiments that train on its tables. An experiment is data, in a file or on the command line.

mod batch;
mod checkpoints;
mod dense;
mod device;
mod end;
mod experiment;
mod figures;
mod growth;
mod hyper;
mod lines;
mod metrics;
mod order;
mod over_ranks;
mod published;
mod ranks;
mod report;
mod run;
mod runs;
mod scaling;
mod setting;
mod tables;
mod task;
mod tasks;

pub use over_ranks::OverRanks;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use experiment::Experiment;
use hotrow_report::failure::Failure;
use hotrow_report::options::Options;
use hotrow_report::{names, output};
use runs::{Lab, RunArgs};
use std::path::{Path, PathBuf};
use std::{fs, num::NonZero, process::ExitCode};

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
    Run {
        /// The experiment, such as lab/experiments/yang-2020.toml
        file: PathBuf,
        /// Parts of the file [default: all]
        #[arg(long, value_name = "PART[,PART]", value_delimiter = ',')]
        only: Vec<String>,
        /// End each run after N steps, to try the experiment
        #[arg(long, value_name = "N")]
        steps: Option<NonZero<u64>>,
        #[command(flatten)]
        args: RunArgs,
    },
    /// Run an experiment of KEY=VALUE[,VALUE..], the keys of a file; lists are multiplied
    #[command(after_help = experiment::help())]
    Train {
        #[command(flatten)]
        args: RunArgs,
        /// Keys and values, such as task=author precision=int4,int2 cache-percent=5. `and` begins another entry of settings, and
        /// C3.precision=int2 is the setting of the table C3
        #[arg(value_name = "KEY=VALUE")]
        words: Vec<String>,
    },
}

/// Runs the command with the arguments of the process.
#[must_use]
pub fn main() -> ExitCode {
    let Cli { options, command } = Cli::parse();
    run(&options, &command).map_or_else(|failure| failure.report(), |()| ExitCode::SUCCESS)
}

fn run(options: &Options, command: &Command) -> Result<(), Failure> {
    let (file, only, steps, args) = match command {
        Command::Run { file, only, steps, args } => (file, only, steps, args),
        Command::Train { args, words } => {
            let experiment = Experiment::of_words(words).map_err(|error| Failure::Usage(format!("{error:#}")))?;
            return part("train", &experiment, options, args, args.folder());
        }
    };
    let name = file.display();
    let text = fs::read_to_string(file).with_context(|| format!("{name}: wanted the file of an experiment"))?;
    let data = options.data();
    let mut parts =
        Experiment::read(&text, data.as_deref()).map_err(|wrong| Failure::Usage(format!("{name}:{wrong}")))?;
    if let Some(unknown) = only.iter().find(|part| !parts.contains_key(*part)) {
        let known = names::list(parts.keys());
        return Err(Failure::Usage(format!("--only: wanted parts of {name}, which has {known}, found {unknown}")));
    }
    parts.retain(|part, _| only.is_empty() || only.contains(part));
    if options.json.is_some() && parts.len() > 1 {
        return Err(Failure::Usage(format!("--json: wanted one part (--only PART), found {}", parts.len())));
    }
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let out = args.folder().map_or_else(|| PathBuf::from(format!("lab-{stem}")), Path::to_owned);
    // A part that fails does not hold up the others.
    let mut done = Ok(());
    for (name, experiment) in &mut parts {
        steps.iter().for_each(|&steps| experiment.shorten(steps));
        output::print(&format!("# {stem}, {name}\n"))?;
        if let Err(failure) = part(name, experiment, options, args, Some(&out.join(name))) {
            output::note(&format!("{name}: {failure}"));
            done = done.and(Err(failure));
        }
    }
    done
}

/// Runs a part of an experiment, and shows its results.
fn part(
    name: &str,
    experiment: &Experiment,
    options: &Options,
    args: &RunArgs,
    folder: Option<&Path>,
) -> Result<(), Failure> {
    args.check(options, experiment)?;
    if let Some(growth) = &experiment.growth {
        return Ok(output::print(&growth.table()?)?);
    }
    let lab = Lab::open((name, experiment), (options, args), folder.map(Path::to_owned))?;
    lab.check_resume(None)?;
    lab.show(options, &lab.run()?)
}
