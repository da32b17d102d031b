//! The `hotrow` command: traces, caches and bandwidth from the shell.

mod bench;
mod failure;
mod info;
pub mod lab;
mod names;
mod options;
mod output;
mod plan;
pub mod plot;
mod progress;
pub mod report;
mod self_test;
mod simulate;
mod simulate_gpu;
pub mod trace;
#[cfg(feature = "train")]
mod train;
pub mod uvm;

use clap::{Parser, Subcommand};
use options::Options;
use std::process::ExitCode;

/// Embedding tables in low precision with a cache of hot rows: plan, simulate and measure.
#[derive(Debug, Parser)]
#[command(name = "hotrow", version, propagate_version = true)]
struct Cli {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Bench(bench::Args),
    Info(info::Args),
    Plan(Box<plan::Args>),
    Simulate(simulate::Args),
    #[cfg(feature = "train")]
    Train(Box<train::Args>),
}

/// Runs the command with the arguments of the process.
#[must_use]
pub fn main() -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("error,wgpu_hal::vulkan::instance=off"))
        .init();
    // Exits by itself: 0 for help and version, 2 for bad usage.
    let cli = Cli::parse();
    let done = match &cli.command {
        Command::Bench(args) => bench::run(&cli.options, args),
        Command::Info(args) => info::run(&cli.options, args),
        Command::Plan(args) => plan::run(&cli.options, args),
        Command::Simulate(args) => simulate::run(&cli.options, args),
        #[cfg(feature = "train")]
        Command::Train(args) => train::run(&cli.options, args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::note(&format!("error: {failure}"));
            failure.exit_code()
        }
    }
}
