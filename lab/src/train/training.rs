//! A loaded task and the way to make its runs, with which every mode begins.

use super::checkpoints::Keep;
use super::journal::{Journal, Record, Run, Subject};
use super::options::RunArgs;
use super::ranks::Ranks;
use super::run::{self, End, RunOptions};
use super::setting::{SMALL_TABLE, Setup};
use super::tables::Device;
use super::task::{Batch, Hyper, TableSpec, Task};
use super::tasks::{self, TaskName};
use hotrow_cli::failure::Failure;
use hotrow_cli::names::value_name;
use hotrow_cli::options::{Backend, Options};
use hotrow_cli::progress::Progress;
use hotrow_cli::trace::Source;
use crc32fast::Hasher;
use hotrow::adapter;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::thread;

/// The end of a run, and its checkpoints.
pub(crate) type How<'a> = dyn Fn(&Setup, u64) -> (End, Keep) + Sync + 'a;

/// A task and the options of its training.
pub(crate) struct Training {
    pub(crate) name: TaskName,
    pub(crate) task: Box<dyn Task>,
    pub(crate) options: RunOptions,
    pub(crate) seeds: Vec<u64>,
    /// The number of runs at a time.
    pub(crate) jobs: usize,
}

impl Training {
    /// Loads the task's data, or what this rank needs of it. Options that were not given get the task's defaults.
    pub(crate) fn open(
        options: &Options,
        args: &RunArgs,
        batch: Option<u32>,
        ranks: Option<Ranks<'_>>,
    ) -> Result<Self, Failure> {
        let (name, data) = (args.task.name(options), options.data());
        let hyper = |own: &Hyper| Hyper {
            batch: batch.map_or(own.batch, |batch| batch as usize),
            epochs: args.epochs.unwrap_or(own.epochs),
            optimizer: args.optimizer.unwrap_or(own.optimizer),
            state: args.state,
            lr: args.lr.unwrap_or(own.lr),
            dense_lr: args.dense_lr.unwrap_or(own.dense_lr),
            decay: args.decay.unwrap_or(own.decay),
        };
        let (limit, first) = (args.task.limit(), options.seed);
        let seeds: Vec<u64> = (0..u64::from(args.seeds)).map(|k| first.wrapping_add(k)).collect();
        let needed = |count: usize, own: &Hyper| {
            let samples = limit.map_or(count, |limit| limit.min(count));
            ranks.map(|ranks| run::needed(ranks, samples, &hyper(own), &seeds, SAMPLES.min(count)))
        };
        let source = Source { data: data.as_deref(), seed: options.seed };
        let task = tasks::open(name, &args.task, &source, &needed)?;
        let device = match options.backend {
            Backend::Gpu => Device::Gpu(adapter::open_best(adapter::Wanted::Any)?),
            Backend::Cpu => Device::Cpu,
            Backend::Auto => adapter::open_best(adapter::Wanted::Hardware).map_or(Device::Cpu, Device::Gpu),
        };
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        // A GPU makes one run at a time.
        let jobs = args.jobs.map_or(if matches!(device, Device::Cpu) { cores } else { 1 }, |jobs| jobs as usize);
        let (hyper, scaling) = (hyper(&task.about().hyper), args.loss_scale);
        let options = RunOptions { hyper, end: End::Epochs, limit, scaling, device };
        Ok(Self { name, task, options, seeds, jobs })
    }

    pub(crate) fn tables(&self) -> &[TableSpec] {
        &self.task.about().tables
    }

    /// The batches of the first epoch with the first seed.
    pub(crate) fn batches(&self) -> impl Iterator<Item = Batch> {
        let (samples, size, seed) = (self.options.samples(&*self.task), self.options.hyper.batch, self.seeds[0]);
        let order = run::order(samples, seed, 0);
        let starts = (0..samples).step_by(size);
        starts.map(move |at| self.task.train_batch(&order[at..samples.min(at + size)], seed, 0))
    }

    /// Everything beside setup and seed that a run's result depends on.
    pub(crate) fn subject(&self) -> Subject {
        // Destructured, so that a new field cannot be forgotten. `end` is missing, since only runs that end after their epochs are kept in a file.
        let RunOptions { hyper, end: _, limit, scaling, device } = &self.options;
        let Hyper { batch, epochs, optimizer, state, lr, dense_lr, decay } = hyper;
        let mut dims: Vec<String> = self.tables().iter().map(|table| table.dim.to_string()).collect();
        dims.dedup();
        let hyper = [
            ("backend", if matches!(device, Device::Cpu) { "cpu" } else { "gpu" }.to_owned()),
            ("batch", batch.to_string()),
            ("data", self.task.about().source.clone()),
            ("decay", decay.to_string()),
            ("loss_scale", scaling.to_string()),
            ("dense lr", dense_lr.to_string()),
            ("dim", dims.join(" ")),
            ("epochs", epochs.to_string()),
            ("limit", limit.map_or_else(|| "none".to_owned(), |limit| limit.to_string())),
            ("lr", lr.to_string()),
            ("optimizer", optimizer.to_string()),
        ];
        // Only where it was chosen, so that older journals stay valid.
        let state = state.map(|state| ("state", state.to_string()));
        let hyper = hyper.into_iter().chain(state).map(|(name, value)| (name.to_owned(), value)).collect();
        Subject { task: value_name(&self.name), hyper, fingerprint: Some(fingerprint(&*self.task)) }
    }

    /// The options of a run of this setup.
    pub(crate) fn options_of(&self, setup: &Setup) -> RunOptions {
        let mut options = self.options.clone();
        options.hyper.batch = setup.batch.unwrap_or(options.hyper.batch);
        options.hyper.lr = setup.rate.unwrap_or(options.hyper.lr);
        options
    }

    /// Makes runs, several at a time, and adds them to the journal. `how` gives the end and the checkpoints of each run. A failed run is
    /// recorded, and the others continue, unless `stop`.
    pub(crate) fn run(&self, journal: &Journal, runs: &[Run], stop: bool, how: &How<'_>) -> anyhow::Result<()> {
        let task = &*self.task;
        let options = |setup: &Setup, end| RunOptions { end, ..self.options_of(setup) };
        let steps = runs.iter().map(|(setup, seed)| options(setup, how(setup, *seed).0).steps(task)).sum();
        let progress = Progress::new(task.about().name, steps);
        journal.run(runs, self.jobs, stop, &|setup, seed| {
            let (end, keep) = how(setup, seed);
            let options = options(setup, end);
            let choice = setup.choice(self.tables()).map_err(anyhow::Error::msg)?;
            let done = run::run(task, &choice, seed, &options, &keep, &|steps| progress.advance(steps), None)?;
            progress.advance(options.steps(task).saturating_sub(done.steps));
            Ok(done)
        })
    }

    /// Makes runs with a journal in memory. After a failure no other run begins, and the failure is returned.
    pub(crate) fn run_all(&self, runs: &[Run], how: &How<'_>) -> anyhow::Result<Vec<Record>> {
        let journal = Journal::new(self.subject());
        self.run(&journal, runs, true, how)?;
        journal.ended(runs)
    }

    pub(crate) fn folder(&self, out: Option<&Path>) -> PathBuf {
        out.map_or_else(|| PathBuf::from(format!("train-{}", value_name(&self.name))), Path::to_owned)
    }

    /// A note on the small tables, which stay FP32 in every setting.
    pub(crate) fn small(&self) -> String {
        let tables = self.tables();
        match tables.iter().filter(|table| table.rows <= SMALL_TABLE).count() {
            0 => String::new(),
            count => {
                format!("{count} of {} tables, of at most {SMALL_TABLE} rows, stay FP32 unless named\n", tables.len())
            }
        }
    }
}

/// The most samples of each set that the fingerprint covers.
const SAMPLES: usize = 1024;

/// A CRC-32 of the first training and test samples, as 8 hexadecimal digits. It is the same on every machine and for every seed.
pub(crate) fn fingerprint(task: &dyn Task) -> String {
    let mut hasher = Hasher::new();
    add(&mut hasher, &task.test_batch(0..SAMPLES.min(task.about().test)));
    let places: Vec<u32> = (0..SAMPLES.min(task.about().train) as u32).collect();
    add(&mut hasher, &task.train_batch(&places, 0, 0));
    format!("{:08x}", hasher.finalize())
}

fn add(hasher: &mut Hasher, batch: &Batch) {
    for bags in &batch.bags {
        add_words(hasher, bags.indices.iter().copied());
        add_words(hasher, bags.offsets.iter().copied());
    }
    add_words(hasher, batch.dense.iter().map(|x| x.to_bits()));
    add_words(hasher, batch.labels.iter().copied());
}

/// The length is hashed too, so that lists with shifted borders differ.
fn add_words(hasher: &mut Hasher, words: impl ExactSizeIterator<Item = u32>) {
    hasher.update(&(words.len() as u64).to_le_bytes());
    words.for_each(|word| hasher.update(&word.to_le_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::task::Bags;

    fn of(batch: &Batch) -> u32 {
        let mut hasher = Hasher::new();
        add(&mut hasher, batch);
        hasher.finalize()
    }

    fn batch() -> Batch {
        let bags = vec![Bags { indices: vec![1, 2, 3], offsets: vec![0, 1, 3] }];
        Batch { bags, dense: vec![0.5, 0.0], labels: vec![0, 1], samples: 2 }
    }

    #[test]
    fn every_part_counts() {
        let known = of(&batch());
        assert_eq!(of(&batch()), known);
        let changes: [fn(&mut Batch); 6] = [
            |batch| batch.bags[0].indices[2] = 4,
            |batch| batch.bags[0].offsets[1] = 2,
            |batch| batch.dense[1] = -0.0,
            |batch| batch.labels[0] = 1,
            |batch| batch.bags.push(Bags::new()),
            // The same words in the same order with another border.
            |batch| {
                batch.dense.truncate(1);
                batch.labels.insert(0, 0);
            },
        ];
        for (at, change) in changes.into_iter().enumerate() {
            let mut other = batch();
            change(&mut other);
            assert_ne!(of(&other), known, "change {at}");
        }
    }
}
