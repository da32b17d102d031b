//! For tests of how a job ends: a rank that fails, and steps that are saved.

use std::{path::PathBuf, process, thread, time::Duration};

use clap::{Args, ValueEnum};
use hotrow_dist::{Comm, Parcels};
use hotrow_harness::ranks::saving;
use hotrow_report::output;

use hotrow_dist::mpi::{Mpi, Outcome};

/// Lets one rank fail while the others wait for it.
#[derive(Debug, Args)]
pub(crate) struct Fault {
    /// The rank that fails.
    #[arg(long)]
    rank: u32,
    #[arg(long)]
    kind: Kind,
    /// The call in which the others wait.
    #[arg(long, default_value = "exchange")]
    wait: Wait,
}

/// Trains a small table from its last checkpoint, and saves it after every step.
#[derive(Debug, Args)]
pub(crate) struct Steps {
    /// The folder of the checkpoint.
    #[arg(long)]
    folder: PathBuf,
    /// The step after which it ends.
    #[arg(long)]
    end: u32,
}

pub(crate) fn steps(comm: &mut Mpi, steps: &Steps) -> Outcome {
    let (begun, failed) = saving(&mut *comm, &steps.folder, steps.end)?;
    failed.map_or(Ok(()), Err)?;
    if comm.rank() == 0 {
        output::print(&format!("from step {begun} to {}", steps.end))?;
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    /// A panic of the main thread.
    Panic,
    /// A panic of another thread, while the main thread waits for the other ranks.
    Thread,
    /// An error returned.
    Error,
    /// `Comm::abort`.
    Abort,
    /// `process::exit` in the middle.
    Exit,
    /// SIGKILL.
    Kill,
    /// The end of the work, too early.
    Return,
    /// The end of the work with an exchange under way.
    Unfinished,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Wait {
    Exchange,
    Gather,
    Max,
}

pub(crate) fn run(comm: &mut Mpi, fault: &Fault) -> Outcome {
    let ranks = comm.size() as usize;
    let parcels = || Parcels::new(vec![vec![1; 1000]; ranks]);
    // All ranks are there.
    comm.max(0)?;
    if comm.rank() == fault.rank {
        match fault.kind {
            Kind::Panic => panic!("a panic that was asked for"),
            Kind::Thread => {
                thread::spawn(|| {
                    thread::sleep(Duration::from_millis(200));
                    panic!("a panic that was asked for");
                });
                // Longer than a job may take to end.
                thread::sleep(Duration::from_secs(60));
            }
            Kind::Error => return Err("an error that was asked for".into()),
            Kind::Abort => comm.abort("an abort that was asked for"),
            Kind::Exit => process::exit(7),
            Kind::Kill => {
                process::Command::new("kill").args(["-9", &process::id().to_string()]).status()?;
                thread::sleep(Duration::from_secs(60));
            }
            Kind::Return => return Ok(()),
            Kind::Unfinished => {
                let _ticket = comm.start(parcels(), &vec![1000; ranks])?;
                return Ok(());
            }
        }
    }
    match fault.wait {
        Wait::Exchange => comm.all_to_all(parcels(), &vec![1000; ranks]).map(drop)?,
        Wait::Gather => comm.all_gather(&[1]).map(drop)?,
        Wait::Max => comm.max(1).map(drop)?,
    }
    Ok(())
}
