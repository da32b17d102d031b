//! The laboratory of hotrow: experiments that train on its tables.

mod train;

pub use train::OverRanks;

use clap::{Parser, Subcommand};
use hotrow_cli::failure::Failure;
use hotrow_cli::options::Options;
use hotrow_cli::output;
use std::process::ExitCode;

/// Trains on embedding tables in low precision and compares the losses.
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
    Train(Box<train::Args>),
}

/// Runs the command with the arguments of the process.
#[must_use]
pub fn main() -> ExitCode {
    let Cli { options, command: Command::Train(args) } = Cli::parse();
    let run = || -> Result<(), Failure> {
        output::check_files(options.json.as_deref(), None, &[], &[])?;
        train::run(&options, &args)
    };
    run().map_or_else(|failure| failure.report(), |()| ExitCode::SUCCESS)
}
