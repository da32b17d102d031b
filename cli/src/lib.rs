//! The `hotrow` command: traces, caches and bandwidth from the shell.

mod bench;
mod export;
mod fused;
mod import;
mod info;
#[doc(hidden)]
pub mod internals;
mod plan;
mod reshard;
mod self_test;
mod simulate;
mod tensors;

use clap::{Parser, Subcommand};
use hotrow_report::failure::Failure;
use hotrow_report::options::Options;
use hotrow_report::output;
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
    Bench(Box<bench::Args>),
    Export(export::Args),
    Import(import::Args),
    Info(info::Args),
    Plan(Box<plan::Args>),
    Reshard(reshard::Args),
    Simulate(simulate::Args),
}

/// Runs the command with the arguments of the process.
#[must_use]
pub fn main() -> ExitCode {
    env_logger::Builder::from_env(
        env_logger::Env::default().default_filter_or("error,hotrow=warn,wgpu_hal::vulkan::instance=off"),
    )
    .init();
    // Exits by itself: with code 0 for help and version, with 2 for bad usage.
    let cli = Cli::parse();
    match cli.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

impl Cli {
    fn run(&self) -> Result<(), Failure> {
        let Self { options, command } = self;
        output::check_files(options.json.as_deref(), None, &[], &[])?;
        match command {
            Command::Bench(args) => bench::run(options, args),
            Command::Export(args) => export::run(options, args),
            Command::Import(args) => import::run(options, args),
            Command::Info(args) => info::run(options, args),
            Command::Plan(args) => plan::run(options, args),
            Command::Reshard(args) => reshard::run(options, args),
            Command::Simulate(args) => simulate::run(options, args),
        }
    }
}
