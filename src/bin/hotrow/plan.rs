//! `hotrow plan`: how large a cache and which batch, by SCARS (SPEC 8); with `--memory`, what a group of tables takes, to the byte.

mod amount;
mod bus;
mod cache;
mod charts;
mod distribution;
mod expect;
mod fit;
mod input;
mod memory;
mod portions;
mod report;
mod scaling;
mod sizes;
mod split;
mod verify;

use crate::failure::Failure;
use crate::names::{OptimizerName, PrecisionName};
use crate::options::Options;

/// How large a cache, and which batch: from a trace or a distribution, and a budget. With --memory, what tables take, to the byte
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    cache: cache::Args,
    #[command(flatten)]
    memory: memory::Args,
}

/// What both kinds of plan ask for. Several values, comma separated, are for --memory alone.
#[derive(Debug, clap::Args)]
struct Common {
    /// Floats in a row
    #[arg(long, value_name = "D[,D]", value_delimiter = ',', default_values_t = [128], allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    dim: Vec<u32>,
    /// Precisions of the table
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [PrecisionName::Int8])]
    precision: Vec<PrecisionName>,
    /// Update rules
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [OptimizerName::Sgd])]
    optimizer: Vec<OptimizerName>,
    /// Samples of a batch [default: the best]; with --memory indices of the largest batch [default: 65536], 0: only what stays
    /// between steps
    #[arg(long, value_name = "N[,N]", value_delimiter = ',', allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(0..=1 << 30))]
    batch: Vec<u32>,
}

/// Runs the subcommand.
pub(crate) fn run(options: &Options, args: &Args) -> Result<(), Failure> {
    if args.memory.memory {
        memory::run(options, &args.common, &args.memory)
    } else {
        cache::run(options, &args.common, &args.cache)
    }
}
