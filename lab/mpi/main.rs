//! The command `hotrow` over the ranks of an MPI job: `mpirun -n 4 hotrow-mpi check`. The subcommands of `hotrow` that take one rank run alone.

mod exchange;
mod fault;
mod same;

use std::{collections::BTreeSet, env, error::Error, iter, process::ExitCode, time::Instant};

use clap::{Parser, Subcommand};
use hotrow_dist::{
    Comm as _,
    mpi::{self, Mpi, Outcome},
};
use hotrow_harness::comm::CHECKS;
use hotrow_report::output;

/// The command hotrow over the ranks of an MPI job.
///
/// Start it with `mpirun -n RANKS hotrow-mpi ...`. Every other subcommand is that of hotrow and takes one rank: see `hotrow-mpi plan --help`.
#[derive(Debug, Parser)]
#[command(name = "hotrow-mpi", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Tests the exchanges between the ranks of this job.
    Check,
    #[command(hide = true)]
    Exchange(exchange::Exchange),
    #[command(hide = true)]
    Fault(fault::Fault),
    #[command(hide = true)]
    Same(same::Same),
    /// Starts and ends a job that does nothing else.
    #[command(hide = true)]
    Start,
    #[command(hide = true)]
    Steps(fault::Steps),
    Train(Box<hotrow_lab::OverRanks>),
}

/// The first words that are this command's own. All others go to `hotrow`.
const OWN: [&str; 12] =
    ["check", "exchange", "fault", "same", "start", "steps", "train", "help", "-h", "--help", "-V", "--version"];

#[allow(unsafe_code, reason = "drivers read this variable, which has no other way to them")]
fn main() -> ExitCode {
    // SAFETY: no thread has been started.
    unsafe { env::set_var("XDG_RUNTIME_DIR", hotrow_report::start::runtime_folder()) };
    let first = env::args_os().nth(1);
    if first.is_some_and(|first| !OWN.iter().any(|own| first == *own)) {
        return hotrow_report::start::alone("this subcommand", "start it without mpirun", hotrow_cli::main);
    }
    match Cli::parse().command {
        Command::Check => mpi::run(check),
        Command::Exchange(exchange) => mpi::run(|comm| exchange::run(comm, &exchange)),
        Command::Fault(fault) => mpi::run(|comm| fault::run(comm, &fault)),
        Command::Same(same) => mpi::run(|comm| same::run(comm, &same)),
        Command::Start => mpi::run(|_| Ok(())),
        Command::Steps(steps) => mpi::run(|comm| fault::steps(comm, &steps)),
        Command::Train(train) => match train.check() {
            Ok(()) => mpi::run(|comm| train.run(comm)),
            Err(refused) => refused,
        },
    }
}

fn check(comm: &mut Mpi) -> Outcome {
    let start = Instant::now();
    for piece in [mpi::PIECE, 999] {
        comm.set_piece(piece);
        for check in CHECKS {
            (check.run)(comm).map_err(|error| format!("{}, pieces of {piece} words: {error}", check.name))?;
        }
    }
    // Every rank has passed.
    let machines = machines(comm)?;
    if comm.rank() == 0 {
        let (ranks, tests) = (comm.size(), CHECKS.len());
        let (rank, machine) =
            (if ranks == 1 { "rank" } else { "ranks" }, if machines == 1 { "machine" } else { "machines" });
        let library = mpi::calls::environment::library_version().unwrap_or_default();
        let library = library.split([',', '\n', '\0']).next().unwrap_or_default();
        let seconds = start.elapsed().as_secs_f64();
        output::print(&format!(
            "{ranks} {rank} on {machines} {machine}: {tests} tests of exchanges passed in {seconds:.2} s ({library})"
        ))?;
    }
    Ok(())
}

/// The number of machines that have ranks of this job, by their names.
fn machines(comm: &mut Mpi) -> Result<usize, Box<dyn Error + Send + Sync>> {
    let name = mpi::calls::environment::processor_name()?;
    // Each rank gives the same number of words: names have at most 256 bytes.
    let mut bytes = name.as_bytes().iter().copied().chain(iter::repeat(0));
    let words: Vec<u32> = (0..64).map(|_| u32::from_le_bytes([(); 4].map(|()| bytes.next().unwrap_or(0)))).collect();
    let all = comm.all_gather(&words)?;
    Ok(all.chunks(words.len()).collect::<BTreeSet<_>>().len())
}
