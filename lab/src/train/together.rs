//! `train` over the ranks of a job: each rank makes the same runs, with its own part of every batch; rank 0 shows the results.

use super::compare;
use super::journal::{self, Record};
use super::options::CompareArgs;
use super::ranks::Ranks;
use super::run;
use super::training::Training;
use hotrow_cli::failure::Failure;
use hotrow_cli::options::{Options, WireArgs, whole};
use hotrow_cli::output;
use hotrow_cli::progress::Progress;
use hotrow::dist::Comm;
use std::cell::RefCell;
use std::process::ExitCode;

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
    compare: CompareArgs,
}

impl OverRanks {
    /// Refuses options that have no effect over ranks, before the job starts. Returns the exit code.
    ///
    /// # Errors
    /// The exit code 2, once the reason is on standard error.
    pub fn check(&self) -> Result<(), ExitCode> {
        let args = &self.compare;
        let one = "it has no effect over ranks yet; leave it out, or train on one rank with hotrow";
        let given = [
            ("--seconds", args.seconds.is_some()),
            ("--jobs", args.run.jobs.is_some()),
            ("several --batch sizes", args.batch.len() > 1),
        ];
        let refused = given.into_iter().find(|(_, given)| *given);
        let refused = refused.map(|(name, _)| Failure::Usage(format!("{name}: wanted none, found it; {one}")));
        let refused = refused.map_or_else(|| args.check(&self.options), Err);
        refused.map_err(|failure| failure.report())
    }

    /// Trains as this rank of a job. Rank 0 prints the results and writes `--json`.
    ///
    /// # Errors
    /// The errors of the data, of the tables and of the exchanges. The job cannot go on after one.
    pub fn run(&self, comm: &mut dyn Comm) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.train(comm).map_err(|failure| failure.to_string().into())
    }

    fn train(&self, comm: &mut dyn Comm) -> Result<(), Failure> {
        let (options, args) = (&self.options, &self.compare);
        let first = comm.rank() == 0;
        let comm = RefCell::new(comm as &mut dyn Comm);
        let ranks = Ranks::new(&comm, self.shards, self.wire.options());
        let training = Training::open(options, &args.run, args.batch.first().copied(), Some(ranks))?;
        if first && args.run.task.task.is_none() {
            output::note(&format!("no --task: {}", training.task.about().source));
        }
        let setups = compare::setups(&args.lists, &args.table, &training)?;
        let runs = journal::each(&setups, &training.seeds);
        let each = training.options.steps(&*training.task);
        if first {
            compare::check_folders(options, args, &runs)?;
        }
        let progress = first.then(|| Progress::new(training.task.about().name, each * runs.len() as u64));
        let watch = |steps| progress.iter().for_each(|progress| progress.advance(steps));
        let mut records = Vec::with_capacity(runs.len());
        let plans: Vec<_> =
            runs.iter().map(|(setup, _)| (setup.choice(training.tables()), training.options_of(setup))).collect();
        for ((setup, seed), (choice, options)) in runs.iter().zip(&plans) {
            let choice = choice.as_ref().map_err(|reason| Failure::Usage(reason.clone()))?;
            let keep = compare::keep(args, setup, *seed);
            let outcome = run::run(&*training.task, choice, *seed, options, &keep, &watch, Some(ranks))?;
            let subject = training.subject();
            records.push(Record { subject, setup: setup.clone(), seed: *seed, outcome: Some(outcome), failure: None });
        }
        drop(progress);
        if first { compare::show(options, args, &training, &records) } else { Ok(()) }
    }
}
