//! Start and end of a rank. A rank that fails ends the whole job: left to itself, it would wait for the others in `MPI_Finalize`, and they for it.

use std::{
    error::Error,
    io::{self, Write as _},
    panic,
    process::ExitCode,
};

use mpi::{Threading, topology::SimpleCommunicator, traits::Communicator as _};

use crate::{
    mpi::{Mpi, abort},
    threads::message,
};

/// The exit code of a program that panics.
const PANICKED: i32 = 101;

/// What a rank may return.
///
/// Example: [module](crate::mpi).
pub type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

/// Runs `work` as this rank of the job. An error, or a panic of any thread, of one rank ends the job with its message and a code other than 0.
pub fn run(work: impl FnOnce(&mut Mpi) -> Outcome) -> ExitCode {
    let failed = |reason: &str| {
        let _ = writeln!(io::stderr().lock(), "error: {reason}");
        ExitCode::FAILURE
    };
    let Some((universe, level)) = mpi::initialize_with_threading(Threading::Funneled) else {
        return failed("MPI: wanted to start it, found it started; start it once");
    };
    let world = universe.world();
    let alone = world.size() == 1;
    if level < Threading::Funneled {
        return failed(&format!(
            "MPI: wanted the thread level Funneled, found {level:?}; take an MPI that is built with threads"
        ));
    }
    if !alone {
        end_with_panics();
    }
    let mut comm = Mpi::new(world);
    let ended = work(&mut comm).and_then(|()| comm.end().map_err(Into::into));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if alone => failed(&error.to_string()),
        Err(error) => abort(&SimpleCommunicator::world(), 1, &error.to_string()),
    }
}

/// Makes every panic end the job.
fn end_with_panics() {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        before(panic);
        abort(&SimpleCommunicator::world(), PANICKED, &format!("it panicked: {}", message(panic.payload())));
    }));
}
