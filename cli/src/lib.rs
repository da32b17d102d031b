//! The `hotrow` command: traces, caches and bandwidth from the shell.

mod bench;
mod clock;
mod export;
pub mod failure;
mod foreign;
mod fused;
mod import;
mod info;
#[doc(hidden)]
pub mod internals;
mod kernel;
pub mod lab;
pub mod names;
pub mod options;
pub mod output;
mod plan;
pub mod plot;
pub mod progress;
pub mod ranks;
pub mod report;
mod reshard;
mod rows;
mod self_test;
mod simulate;
mod simulate_gpu;
mod spec;
mod tensors;
pub mod trace;
pub mod uvm;

use clap::{Parser, Subcommand};
use failure::Failure;
use options::Options;
use std::process::ExitCode;
#[cfg(all(unix, not(target_vendor = "apple")))]
use std::{env, os::unix::process::CommandExt as _, path::Path, process};

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

/// Puts this program in its own place, once, with a runtime folder, if it has none: Wayland's library, which graphics drivers load, would complain on stderr.
/// Variables may only be set before a process begins. The folder is no folder, so nothing is found in it or left in it. Returns where nothing is to be done.
pub fn with_runtime_folder() {
    #[cfg(all(unix, not(target_vendor = "apple")))]
    if env::var_os("XDG_RUNTIME_DIR").is_none_or(|folder| Path::new(&folder).is_relative()) {
        let mut arguments = env::args_os();
        // An interpreter of programs is not put in place of this one.
        if let (Ok(program), Some(name)) = (env::current_exe(), arguments.next())
            && (program.file_name().is_some_and(|own| own.to_string_lossy().starts_with("hotrow"))
                || program.file_name() == Path::new(&name).file_name()
                || Path::new(&name).canonicalize().is_ok_and(|name| name == program))
        {
            let mut again = process::Command::new(program);
            // It returns only if this could not be done.
            let _error = again.arg0(name).args(arguments).env("XDG_RUNTIME_DIR", "/dev/null").exec();
        }
    }
}

/// Runs the command with the arguments of the process.
#[must_use]
pub fn main() -> ExitCode {
    with_runtime_folder();
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
