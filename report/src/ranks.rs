//! Whether this process is one rank of many that an MPI launcher started.

use crate::failure::Failure;
use std::process::ExitCode;

/// The variables in which launchers say how many ranks there are: Open MPI's, and that of MPICH, Intel MPI and others.
const VARIABLES: [&str; 2] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"];

/// A launcher that started more than one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launched {
    /// The variable that says so.
    pub variable: &'static str,
    /// The number of ranks.
    pub ranks: u32,
}

/// Whether a launcher started more than one rank.
#[must_use]
pub fn launched() -> Option<Launched> {
    let ranks = |variable| Some((variable, std::env::var(variable).ok()?.parse().ok()?));
    let (variable, ranks) = VARIABLES.into_iter().filter_map(ranks).max_by_key(|(_, ranks)| *ranks)?;
    (ranks > 1).then_some(Launched { variable, ranks })
}

impl Launched {
    /// Refuses to run `what`, of which each rank would do the whole: writes the reason and the `remedy` to standard error. Returns exit code 2.
    pub fn refuse(self, what: &str, remedy: &str) -> ExitCode {
        let Self { variable, ranks } = self;
        let found =
            format!("{what}: wanted one rank, found {ranks} ({variable}), each of which would do the whole job");
        Failure::usage(format!("{found}; {remedy}, or unset {variable}")).report()
    }
}
