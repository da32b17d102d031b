//! `hotrow bench`: bandwidth against hit rate (Yang 2020, Figure 9); `bench suite` and `bench robe` measure kernels and shared tables, `bench
//! dist` groups over ranks, `bench compare` sets what several machines measured side by side. `bench capture` and `bench replay` measure nothing.

mod capture;
mod common;
pub(crate) mod compare;
mod dist;
mod robe;
mod runners;
mod suite;
mod sweep;

use hotrow_report::failure::Failure;
use hotrow_report::options::Options;

/// Measure bandwidth against hit rate, forward and backward, for precisions x policies, with bounds
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
    Compare(compare::Args),
    Dist(dist::Args),
    Capture(Box<capture::Args>),
    Replay(capture::Dir),
}

pub(crate) fn run(options: &Options, args: &Args) -> Result<(), Failure> {
    match &args.mode {
        None => sweep::run(options, &args.sweep),
        Some(Mode::Suite(args)) => suite::run(options, args),
        Some(Mode::Robe(args)) => robe::run(options, args),
        Some(Mode::Compare(args)) => compare::run(options, args),
        Some(Mode::Dist(args)) => dist::run(options, args),
        Some(Mode::Capture(args)) => capture::run(options, args),
        Some(Mode::Replay(args)) => capture::replay(options, args),
    }
}
