//! `train` over the ranks of a job: each rank makes the same runs, with its own part of every batch; rank 0 shows the results.

use crate::experiment::Experiment;
use crate::ranks::Ranks;
use crate::runs::{Lab, RunArgs};
use crate::setting::Setting;
use crate::tables::NO_ARRAY;
use hotrow_dist::Comm;
use hotrow_report::failure::Failure;
use hotrow_report::options::{Options, WireArgs, whole};
use std::{cell::RefCell, process::ExitCode};

/// Train over the ranks of this job, the tables in virtual shards. Losses and tables are the same bits for every number of ranks
#[derive(Debug, clap::Args)]
pub struct OverRanks {
    #[command(flatten)]
    options: Options,
    /// Virtual shards: a power of two that the number of ranks divides. Results depend on it
    #[arg(long, value_name = "V", default_value_t = 8, value_parser = whole(1u32..=1 << 16))]
    shards: u32,
    #[command(flatten)]
    wire: WireArgs,
    #[command(flatten)]
    args: RunArgs,
    /// Keys of an experiment, as `hotrow-lab train --help` lists them
    #[arg(value_name = "KEY=VALUE")]
    words: Vec<String>,
}

impl OverRanks {
    /// Refuses options that have no effect over ranks, before the job starts.
    ///
    /// # Errors
    /// The exit code 2, once the reason is on standard error.
    pub fn check(&self) -> Result<(), ExitCode> {
        self.checked().map(|_| ()).map_err(|failure| failure.report())
    }

    fn checked(&self) -> Result<Experiment, Failure> {
        let experiment = Experiment::of_words(&self.words).map_err(|error| Failure::Usage(format!("{error:#}")))?;
        if self.args.jobs.is_some() || !experiment.may_resume() {
            return Err(Failure::usage(
                "over ranks: wanted an end by epochs or steps and no --jobs, found another; leave it out",
            ));
        }
        self.args.check(&self.options, &experiment)?;
        let setups = experiment.setups(self.options.data().as_deref());
        let (_, setups) = setups.map_err(|error| Failure::Usage(format!("{error:#}")))?;
        let mut settings = setups.iter().flat_map(|setup| [&setup.setting].into_iter().chain(setup.tables.values()));
        if settings.any(Setting::is_shared) { Err(Failure::usage(NO_ARRAY)) } else { Ok(experiment) }
    }

    /// Trains as this rank of a job. Rank 0 prints the results and writes `--json`.
    ///
    /// # Errors
    /// The errors of the data, of the tables and of the exchanges. The job cannot go on after one.
    pub fn run(&self, comm: &mut dyn Comm) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.train(comm).map_err(|failure| failure.to_string().into())
    }

    fn train(&self, comm: &mut dyn Comm) -> Result<(), Failure> {
        let experiment = self.checked()?;
        let first = comm.rank() == 0;
        let comm = RefCell::new(comm as &mut dyn Comm);
        let ranks = Ranks::new(&comm, self.shards, self.wire.options());
        let folder = self.args.folder().map(ToOwned::to_owned);
        let lab = Lab::open(("train", &experiment), (&self.options, &self.args), folder)?;
        lab.check_resume(Some(ranks))?;
        let done = lab.run_over(ranks)?;
        if first { lab.show(&self.options, &done) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        over: OverRanks,
    }

    #[test]
    fn a_shared_array_over_ranks_is_refused() {
        let found = |word| Command::parse_from(["train", "task=dlrm", word]).over.checked();
        for word in ["compression=10", "weights=100", "C3.compression=10"] {
            assert!(matches!(found(word), Err(Failure::Usage(reason)) if reason == NO_ARRAY), "{word}");
        }
        assert!(found("precision=int8").is_ok());
    }
}
