//! `hotrow plan`: how large a cache and which batch, by SCARS (SPEC 8); with `--memory`, what a group of tables takes, to the byte; with
//! `--robe`, what a table at hand loses in a shared array.

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
mod robe;
mod scaling;
mod sizes;
mod split;
mod verify;

use crate::failure::Failure;
use crate::names::{OptimizerName, PrecisionName};
use crate::options::{Backend, Options};

/// How large a cache, and which batch: from a trace or a distribution, and a budget. With --memory, what tables take, to the byte.
/// With --robe, what a table's rows lose in a shared array
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    cache: cache::Args,
    #[command(flatten)]
    memory: memory::Args,
    #[command(flatten)]
    robe: robe::Args,
}

/// Floats in a row, if nobody says.
const DIM: u32 = 128;

/// What several kinds of plan ask for. Several values, comma separated, are for --memory alone.
#[derive(Debug, clap::Args)]
struct Common {
    /// Floats in a row [default: 128]
    #[arg(long, value_name = "D[,D]", value_delimiter = ',', allow_negative_numbers = true,
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

impl Common {
    /// Floats in a row.
    fn dims(&self) -> &[u32] {
        if self.dim.is_empty() { &[DIM] } else { &self.dim }
    }
}

/// Runs the subcommand.
pub(crate) fn run(options: &Options, args: &Args) -> Result<(), Failure> {
    check(options, args)?;
    if let Some(table) = &args.robe.robe {
        robe::run(options, &args.common, &args.cache, table, &args.robe)
    } else if args.memory.memory {
        memory::run(options, &args.common, &args.memory, &args.robe)
    } else {
        cache::run(options, &args.common, &args.cache)
    }
}

/// Refuses what is asked of every subcommand and would be ignored here.
fn check(options: &Options, args: &Args) -> Result<(), Failure> {
    if options.backend == Backend::Gpu && !args.cache.verify() {
        return Err(Failure::Usage(
            "--backend: wanted auto or cpu without --verify, found gpu; nothing but --verify runs on a GPU, leave it out".into(),
        ));
    }
    let mode = match () {
        () if args.memory.memory => Some("--memory"),
        () if args.robe.robe.is_some() => Some("--robe TABLE"),
        () if args.cache.distributed() => Some("--distribution"),
        () => None, // a plan for cache and batch says itself that it looked none up
    };
    if args.cache.trace().is_none()
        && let (Some(mode), Some(folder)) = (mode, options.data_option())
    {
        return Err(Failure::Usage(format!(
            "--data: wanted --trace beside it, found {} with {mode} alone; only traces are looked up there, leave it out",
            folder.display()
        )));
    }
    Ok(())
}
