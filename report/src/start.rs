//! How a program starts.

use crate::failure::Failure;
use std::{env, ffi::OsString, path::Path, process::ExitCode};

/// The variables in which MPI's launchers say how many ranks there are: Open MPI's, and that of MPICH, Intel MPI and others.
const VARIABLES: [&str; 2] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"];

/// What each program sets `XDG_RUNTIME_DIR` to, before it starts a thread: its own value, or without one `/dev/null`, since Wayland's library, which graphics
/// drivers load, would complain on stderr.
pub fn runtime_folder() -> OsString {
    let given = env::var_os("XDG_RUNTIME_DIR").filter(|folder| Path::new(folder).is_absolute());
    given.unwrap_or_else(|| "/dev/null".into())
}

/// Runs a program, unless a launcher started more than one rank, of which each would do the whole of `what`: then it writes the reason and the `remedy`
/// to standard error. Returns the exit code, which is 2 for a refusal.
pub fn alone(what: &str, remedy: &str, run: impl FnOnce() -> ExitCode) -> ExitCode {
    let ranks = |variable| Some((env::var(variable).ok()?.parse::<u32>().ok()?, variable));
    match VARIABLES.into_iter().filter_map(ranks).max() {
        Some((ranks, variable)) if ranks > 1 => {
            let found =
                format!("{what}: wanted one rank, found {ranks} ({variable}), each of which would do the whole job");
            Failure::usage(format!("{found}; {remedy}, or unset {variable}")).report()
        }
        _ => run(),
    }
}
