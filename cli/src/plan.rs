//! `hotrow plan`: the size of a cache and of a batch, by SCARS (SPEC 8). `plan memory`: the bytes of a group of tables. `plan dist`: the bytes
//! between the ranks that share one. `plan robe`: the loss of a table whose rows share an array. `plan precision`: the rows of a table by their use in groups of
//! different precisions.

pub(crate) mod amount;
mod cache;
pub(crate) mod dist;
pub(crate) mod distribution;
mod input;
mod marginal;
mod memory;
mod precision;
mod quarters;
mod report;
pub(crate) mod robe;
mod tables;
mod verify;

use hotrow_report::failure::Failure;
use hotrow_report::options::Options;

/// Plan the size of a cache and of a batch from a trace or a distribution, and a budget
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    mode: Option<Mode>,
    #[command(flatten)]
    cache: cache::Args,
}

#[derive(Debug, clap::Subcommand)]
enum Mode {
    Memory(memory::Args),
    Dist(Box<dist::Args>),
    Robe(robe::Args),
    Precision(precision::Args),
}

pub(crate) fn run(options: &Options, args: &Args) -> Result<(), Failure> {
    match &args.mode {
        None => cache::run(options, &args.cache),
        Some(Mode::Memory(memory)) => memory::run(options, memory),
        Some(Mode::Dist(dist)) => dist::run(options, dist),
        Some(Mode::Robe(robe)) => robe::run(options, robe),
        Some(Mode::Precision(precision)) => precision::run(options, precision),
    }
}
