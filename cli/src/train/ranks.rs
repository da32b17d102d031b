//! `train` over the ranks of a job: each rank makes the same runs, with its own part of every batch; rank 0 shows the results.

use super::checkpoints::Keep;
use super::compare;
use super::journal::{self, Record};
use super::options::CompareArgs;
use super::run;
use super::training::Training;
use crate::failure::Failure;
use crate::options::{Options, whole};
use hotrow::Error;
use hotrow::dist::{Comm, Parcels, Ticket};
use std::cell::RefCell;
use std::ops::Range;
use std::process::ExitCode;

/// The connection of a rank, for all tables of a model and for its dense part, and the number of virtual shards.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ranks<'a> {
    comm: &'a RefCell<&'a mut dyn Comm>,
    pub(crate) shards: u32,
}

impl<'a> Ranks<'a> {
    pub(crate) fn new(comm: &'a RefCell<&'a mut dyn Comm>, shards: u32) -> Self {
        Self { comm, shards }
    }

    /// This rank's parts of `samples` samples; there is a part for each shard.
    pub(crate) fn parts(self, samples: usize) -> impl Iterator<Item = Range<usize>> {
        self.of(self.rank(), samples)
    }

    /// The parts of a rank.
    fn of(self, rank: u32, samples: usize) -> impl Iterator<Item = Range<usize>> {
        let start = move |part: u32| (samples as u64 * u64::from(part) / u64::from(self.shards)) as usize;
        let each = self.shards / self.size();
        (rank * each..(rank + 1) * each).map(move |part| start(part)..start(part + 1))
    }

    /// The sum of a vector of each part, over the parts of all ranks: neighbours are added, then neighbours of those sums, and so on. This rank
    /// gives the vectors of its parts. Both numbers are powers of two, so a rank's parts are a branch of that tree.
    pub(crate) fn sum(mut self, vectors: Vec<Vec<f32>>) -> Result<Vec<f32>, Error> {
        let own = tree(vectors);
        let words: Vec<u32> = own.iter().map(|value| value.to_bits()).collect();
        let all = self.all_gather(&words)?;
        Ok(tree(
            all.chunks(words.len().max(1)).map(|words| words.iter().copied().map(f32::from_bits).collect()).collect(),
        ))
    }

    /// The values of all ranks' parts, in the order of the samples. A part has `len` values.
    pub(crate) fn gather(
        mut self,
        own: &[f32],
        len: impl Fn(&Range<usize>) -> usize,
        samples: usize,
    ) -> Result<Vec<f32>, Error> {
        let lens: Vec<usize> =
            (0..self.size()).map(|rank| self.of(rank, samples).map(|part| len(&part)).sum()).collect();
        // Each rank gives the same number of words.
        let longest = lens.iter().copied().max().unwrap_or(0);
        let mut words: Vec<u32> = own.iter().map(|value| value.to_bits()).collect();
        words.resize(longest, 0);
        let all = self.all_gather(&words)?;
        let parts = all.chunks(longest.max(1)).zip(lens);
        Ok(parts.flat_map(|(words, len)| words[..len].iter().copied().map(f32::from_bits)).collect())
    }

    /// The sums of numbers over all ranks.
    pub(crate) fn total(mut self, own: &[u64]) -> Result<Vec<u64>, Error> {
        let words: Vec<u32> = own.iter().flat_map(|&number| [number as u32, (number >> 32) as u32]).collect();
        let all = self.all_gather(&words)?;
        let mut sums = vec![0; own.len()];
        for of_rank in all.chunks(words.len().max(1)) {
            for (sum, words) in sums.iter_mut().zip(of_rank.chunks(2)) {
                *sum += u64::from(words[0]) | u64::from(words[1]) << 32;
            }
        }
        Ok(sums)
    }
}

/// Adds neighbours until one vector is left.
fn tree(mut vectors: Vec<Vec<f32>>) -> Vec<f32> {
    while vectors.len() > 1 {
        vectors = vectors
            .chunks(2)
            .map(|pair| match pair {
                [left, right] => left.iter().zip(right).map(|(left, right)| left + right).collect(),
                rest => rest.concat(),
            })
            .collect();
    }
    vectors.pop().unwrap_or_default()
}

/// The ranks' connection is shared by the groups of a model, which take turns.
impl Comm for Ranks<'_> {
    fn rank(&self) -> u32 {
        self.comm.borrow().rank()
    }

    fn size(&self) -> u32 {
        self.comm.borrow().size()
    }

    fn start(&mut self, send: Parcels, receive: &[usize]) -> Result<Ticket, Error> {
        self.comm.borrow_mut().start(send, receive)
    }

    fn poll(&mut self, ticket: &Ticket) -> Result<bool, Error> {
        self.comm.borrow_mut().poll(ticket)
    }

    fn finish(&mut self, ticket: Ticket) -> Result<Parcels, Error> {
        self.comm.borrow_mut().finish(ticket)
    }

    fn all_gather(&mut self, words: &[u32]) -> Result<Vec<u32>, Error> {
        self.comm.borrow_mut().all_gather(words)
    }

    fn max(&mut self, value: u32) -> Result<u32, Error> {
        self.comm.borrow_mut().max(value)
    }

    fn abort(&mut self, reason: &str) {
        self.comm.borrow_mut().abort(reason);
    }
}

/// Train over the ranks of this job, the tables in virtual shards. Losses and tables are the same bits for every number of ranks
#[derive(Debug, clap::Args)]
pub struct OverRanks {
    #[command(flatten)]
    options: Options,
    /// Virtual shards: a power of two that the number of ranks divides. Results depend on it
    #[arg(long, value_name = "V", default_value_t = 8, value_parser = whole(1u32..=1 << 16))]
    shards: u32,
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
            ("--loss-scale", args.run.loss_scale.0.is_some()),
            ("--checkpoint-every", args.checkpoint_every.is_some()),
            ("--resume", args.resume.is_some()),
            ("--out", args.out.is_some()),
            ("--seconds", args.seconds.is_some()),
            ("--jobs", args.run.jobs.is_some()),
            ("several --batch sizes", args.batch.len() > 1),
        ];
        let refused = given.into_iter().find(|(_, given)| *given);
        let refused = refused.map(|(name, _)| Failure::Usage(format!("{name}: wanted none, found it; {one}")));
        refused.map_or_else(|| args.check(&self.options), Err).map_err(|failure| failure.report())
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
        let training = Training::open(options, &args.run, args.batch.first().copied())?;
        let setups = compare::setups(&args.lists, &args.table, &training)?;
        let runs = journal::each(&setups, &training.seeds);
        let each = training.options.steps(&*training.task);
        let progress =
            first.then(|| crate::progress::Progress::new(training.task.about().name, each * runs.len() as u64));
        let watch = |steps| progress.iter().for_each(|progress| progress.advance(steps));
        let mut records = Vec::with_capacity(runs.len());
        let plans: Vec<_> =
            runs.iter().map(|(setup, _)| (setup.choice(training.tables()), training.options_of(setup))).collect();
        let comm = RefCell::new(comm as &mut dyn Comm);
        let ranks = Ranks::new(&comm, self.shards);
        for ((setup, seed), (choice, options)) in runs.iter().zip(&plans) {
            let choice = choice.as_ref().map_err(|reason| Failure::Usage(reason.clone()))?;
            let outcome = run::run(&*training.task, choice, *seed, options, &Keep::default(), &watch, Some(ranks))?;
            let subject = training.subject();
            records.push(Record { subject, setup: setup.clone(), seed: *seed, outcome: Some(outcome), failure: None });
        }
        drop(progress);
        if first { compare::show(options, args, &training, &records) } else { Ok(()) }
    }
}
