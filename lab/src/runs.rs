//! The runs of an experiment: each setting with each seed, several at a time. In a folder each has a file, and is not made again.

use crate::checkpoints::{self, Keep};
use crate::experiment::Experiment;
use crate::figures::{self, Done, Goal};
use crate::ranks::Ranks;
use crate::run::{self, End, Outcome, RunOptions};
use crate::setting::{SMALL_TABLE, Setup, WAYS};
use crate::skew;
use crate::tables::{self, Device};
use crate::task::{Batch, Task};
use crate::tasks;
use anyhow::{Context as _, anyhow, bail};
use crc32fast::Hasher;
use hotrow::{adapter, dist::Comm as _};
use hotrow_cli::failure::Failure;
use hotrow_cli::options::{Backend, Options, whole};
use hotrow_cli::output;
use hotrow_cli::progress::Progress;
use hotrow_cli::report;
use hotrow_cli::trace::Source;
use serde_json::{Value, json};
use std::fs;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// How the runs are made.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// Runs of each setting, each with a seed of its own [default: the experiment's, else 3]
    #[arg(long, value_name = "N", value_parser = whole(1u32..=1000))]
    pub(crate) seeds: Option<u32>,
    /// Runs at a time, each on one core [default: the number of cores; 1 on a GPU]
    #[arg(long, value_name = "N", value_parser = whole(1u32..=1024))]
    pub(crate) jobs: Option<u32>,
    /// Folder of the runs, tables and charts. A run that is there is not made again
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Keep a checkpoint of each run in --out every N steps
    #[arg(long, value_name = "N", value_parser = whole(1..=u64::MAX))]
    pub(crate) checkpoint_every: Option<u64>,
    /// Continue from the checkpoints in DIR, an earlier --out; runs without one start anew
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    pub(crate) resume: Option<PathBuf>,
}

impl RunArgs {
    /// The folder of the results.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.resume.as_deref().or(self.out.as_deref())
    }

    /// Refuses options that have no effect, and folders and files that cannot be written, before any data is read.
    pub(crate) fn check(&self, options: &Options, experiment: &Experiment) -> Result<(), Failure> {
        let checkpoints = self.checkpoint_every.is_some() || self.resume.is_some();
        if self.checkpoint_every.is_some() && self.folder().is_none() {
            return Err(Failure::usage("--checkpoint-every: wanted --out DIR beside it, found none; give that"));
        }
        if checkpoints && !experiment.end.may_resume() {
            return Err(Failure::usage(
                "checkpoints: wanted an end by epochs or steps, found a goal or seconds; leave them out",
            ));
        }
        output::check_files(options.json.as_deref(), None, &[], experiment.task.criteo.as_slice())?;
        self.out.as_deref().map_or(Ok(()), |out| output::check_folder(out, options.json.as_deref()))
    }
}

/// A part of an experiment with its task, ready to run.
pub(crate) struct Lab<'a> {
    name: &'a str,
    experiment: &'a Experiment,
    args: &'a RunArgs,
    folder: Option<PathBuf>,
    task: Box<dyn Task>,
    epochs: u32,
    setups: Vec<Setup>,
    seeds: Vec<u64>,
    device: Device,
}

impl<'a> Lab<'a> {
    /// Loads the task's data, or what this rank needs of it.
    pub(crate) fn open(
        (name, experiment): (&'a str, &'a Experiment),
        (options, args): (&Options, &'a RunArgs),
        folder: Option<PathBuf>,
        ranks: Option<Ranks<'_>>,
    ) -> Result<Self, Failure> {
        let usage = |error: anyhow::Error| Failure::Usage(format!("{error:#}"));
        let data = options.data();
        let (epochs, mut setups) = experiment.setups(data.as_deref()).map_err(usage)?;
        let seeds = (0..u64::from(args.seeds.unwrap_or(experiment.seeds))).map(|k| options.seed.wrapping_add(k));
        let seeds: Vec<u64> = seeds.collect();
        let needed = |count: usize| {
            let samples = experiment.task.limit().map_or(count, |limit| limit.min(count));
            let batch = setups[0].hyper.batch;
            let epochs = match experiment.end.of(epochs, 1, None) {
                End::Steps(steps) => steps.div_ceil(samples.div_ceil(batch).max(1) as u64) as u32,
                End::Epochs(epochs) => epochs,
                End::Seconds(_) | End::Goal { .. } => epochs,
            };
            ranks.map(|ranks| run::needed(ranks, samples, (batch, epochs), &seeds, SAMPLES.min(count)))
        };
        let source = Source { data: data.as_deref(), seed: options.seed };
        let task = tasks::open(&experiment.task, &source, &needed)?;
        let device = match options.backend {
            Backend::Gpu => Device::Gpu(adapter::open_best(adapter::Wanted::Any)?),
            Backend::Cpu => Device::Cpu,
            Backend::Auto => adapter::open_best(adapter::Wanted::Hardware).map_or(Device::Cpu, Device::Gpu),
        };
        if matches!(device, Device::Gpu(_)) {
            let left_out = setups.extract_if(.., |setup| setup.setting.ways != WAYS).count();
            if left_out > 0 {
                output::note(&format!(
                    "{left_out} settings of other than {WAYS} ways are left out: the GPU's kernels know no other; take --backend cpu"
                ));
            }
        }
        for setup in &setups {
            let choice = setup.choice(&task.about().tables).map_err(usage)?;
            tables::check(&task.about().tables, &choice, &setup.hyper)
                .map_err(|error| Failure::Usage(format!("{}: {error}", setup.label())))?;
        }
        let lab = Self { name, experiment, args, folder, task, epochs, setups, seeds, device };
        if ranks.is_none_or(|ranks| ranks.rank() == 0) {
            if !experiment.task.is_named() {
                output::note(&format!("no task: {}", lab.task.about().source));
            }
            lab.check_resume()?;
        }
        Ok(lab)
    }

    /// Refuses `--resume` if no run has a checkpoint.
    fn check_resume(&self) -> Result<(), Failure> {
        let Some(resume) = &self.args.resume else { return Ok(()) };
        for (setup, seed) in self.each(&self.setups) {
            if checkpoints::newest(&self.keep(&setup, seed).folder, None)?.is_some() {
                return Ok(());
            }
        }
        Err(Failure::Usage(format!(
            "--resume: wanted checkpoints of these settings and seeds in {}, found none; give the folder that --out named, and the \
             same options",
            resume.display()
        )))
    }

    /// Every setup with every seed.
    fn each(&self, setups: &[Setup]) -> Vec<(Setup, u64)> {
        setups.iter().flat_map(|setup| self.seeds.iter().map(|&seed| (setup.clone(), seed))).collect()
    }

    fn options(&self, setup: &Setup, best: Option<f64>) -> RunOptions {
        let limit = self.experiment.task.limit();
        let options = RunOptions { hyper: setup.hyper, end: End::Steps(0), limit, device: self.device.clone() };
        let end = &self.experiment.end;
        let plain = RunOptions { end: end.of(self.epochs, 1, best), ..options.clone() };
        match plain.end {
            End::Goal { .. } => {
                let steps = RunOptions { end: end.plain(self.epochs), ..options.clone() }.steps(&*self.task);
                RunOptions { end: end.of(self.epochs, steps, best), ..options }
            }
            _ => plain,
        }
    }

    /// The checkpoints of a run.
    fn keep(&self, setup: &Setup, seed: u64) -> Keep {
        let folder = self.folder.as_ref().map(|folder| folder.join("checkpoints").join(run_name(&setup.label(), seed)));
        let (every, resume) = (self.args.checkpoint_every, self.args.resume.is_some());
        Keep { folder: folder.unwrap_or_default(), every, resume }
    }

    fn progress(&self) -> Progress {
        let steps = |setup: &Setup| self.options(setup, Some(0.0)).steps(&*self.task);
        let all = self.setups.iter().map(steps).sum::<u64>() * self.seeds.len() as u64;
        Progress::new(self.task.about().name, all)
    }

    /// Makes the runs over ranks, one after the other. The first that fails is an error.
    pub(crate) fn run_over(&self, ranks: Ranks<'_>) -> anyhow::Result<Vec<Done>> {
        let progress = (ranks.rank() == 0).then(|| self.progress());
        let one = |(setup, seed): (Setup, u64)| {
            let outcome = Ok(self.train(&setup, seed, None, progress.as_ref(), Some(ranks))?);
            Ok(Done { setup, seed, outcome })
        };
        self.each(&self.setups).into_iter().map(one).collect()
    }

    /// Makes the runs that are missing. A run that fails or panics is among the results, and the others go on.
    pub(crate) fn run(&self) -> anyhow::Result<Vec<Done>> {
        let progress = self.progress();
        let Some(measure) = self.experiment.end.goal else { return self.run_all(&self.setups, &progress, &|_| None) };
        if let Some(at) = self.experiment.end.at {
            return self.run_all(&self.setups, &progress, &|_| Some(at));
        }
        // The first setting sets the goal of each seed.
        let mut done = self.run_all(&self.setups[..1], &progress, &|_| None)?;
        let best = |seed: u64| {
            let first = done.iter().find(|done| done.seed == seed);
            first.and_then(|done| measure.best(&done.outcome.as_ref().ok()?.curve)).or(Some(f64::NAN))
        };
        let others = self.run_all(&self.setups[1..], &progress, &best)?;
        done.extend(others);
        Ok(done)
    }

    fn run_all(
        &self,
        setups: &[Setup],
        progress: &Progress,
        best: &(dyn Fn(u64) -> Option<f64> + Sync),
    ) -> anyhow::Result<Vec<Done>> {
        let runs = self.each(setups);
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        // A GPU makes one run at a time.
        let by_device = if matches!(self.device, Device::Cpu) { cores } else { 1 };
        let jobs = self.args.jobs.map_or(by_device, |jobs| jobs as usize).clamp(1, runs.len().max(1));
        let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        // Plain threads. A run waits for a pool of its own, and a rayon thread that waits would begin another run meanwhile, nested in the
        // first.
        let work = || -> anyhow::Result<()> {
            loop {
                let at = next.fetch_add(1, Relaxed);
                let Some((setup, seed)) = runs.get(at).cloned() else { return Ok(()) };
                let outcome = self.kept_or_made(&setup, seed, best(seed), progress);
                if outcome.is_err() {
                    // Runs that cannot be kept are not begun.
                    next.store(runs.len(), Relaxed);
                }
                let done_one = Done { setup, seed, outcome: outcome? };
                done.lock().unwrap_or_else(PoisonError::into_inner).push((at, done_one));
            }
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
            threads.into_iter().try_for_each(|one| one.join().unwrap_or_else(|_| bail!("a thread of runs panicked")))
        })?;
        let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.sort_by_key(|(at, _)| *at);
        Ok(done.into_iter().map(|(_, done)| done).collect())
    }

    /// The outcome of a run, from its file or made now. A file appears whole or not at all; a run that failed has none.
    fn kept_or_made(
        &self,
        setup: &Setup,
        seed: u64,
        best: Option<f64>,
        progress: &Progress,
    ) -> anyhow::Result<Result<Outcome, String>> {
        let name = format!("{}.json", run_name(&setup.label(), seed));
        let file = self.folder.as_ref().map(|folder| folder.join("runs").join(name));
        let identity = self.identity(setup, seed);
        if let Some(file) = &file
            && let Some(outcome) = known(file, &identity, self.args.resume.is_some())?
        {
            progress.advance(self.options(setup, best).steps(&*self.task));
            return Ok(Ok(outcome));
        }
        let made = catch_unwind(AssertUnwindSafe(|| {
            // A pool of one thread, so that a run uses one core.
            let alone = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
            alone.install(|| self.train(setup, seed, best, Some(progress), None))
        }));
        let outcome = made.unwrap_or_else(|panic| {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(anyhow!("panic: {}", said.unwrap_or("no reason given")))
        });
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => return Ok(Err(format!("{error:#}"))),
        };
        if let Some(file) = &file {
            fs::create_dir_all(file.parent().unwrap_or(file))?;
            let text = serde_json::to_vec_pretty(&json!({ "run": identity, "outcome": outcome }))?;
            output::replace(file, |to| Ok(std::io::Write::write_all(to, &text)?))
                .map_err(|failure| anyhow!("{failure}"))?;
        }
        Ok(Ok(outcome))
    }

    fn train(
        &self,
        setup: &Setup,
        seed: u64,
        best: Option<f64>,
        progress: Option<&Progress>,
        ranks: Option<Ranks<'_>>,
    ) -> anyhow::Result<Outcome> {
        let (task, options) = (&*self.task, self.options(setup, best));
        let choice = setup.choice(&task.about().tables)?;
        let watch = |steps| progress.into_iter().for_each(|progress| progress.advance(steps));
        let done = run::run(task, &choice, seed, &options, &self.keep(setup, seed), &watch, ranks)?;
        watch(options.steps(task).saturating_sub(done.steps));
        Ok(done)
    }

    /// Everything that a run's result depends on.
    fn identity(&self, setup: &Setup, seed: u64) -> Value {
        let about = self.task.about();
        let dims: Vec<u32> = about.tables.iter().map(|table| table.dim).collect();
        json!({
            "task": about.name,
            "data": about.source,
            "fingerprint": fingerprint(&*self.task),
            "dims": dims,
            "limit": self.experiment.task.limit(),
            "backend": if matches!(self.device, Device::Cpu) { "cpu" } else { "gpu" },
            "end": self.experiment.end,
            "steps": self.options(setup, Some(0.0)).steps(&*self.task),
            "seed": seed,
            "setup": setup,
        })
    }

    /// Prints the results, and writes them to the folder and to `--json`. Runs that failed are an error in the end.
    pub(crate) fn show(&self, options: &Options, done: &[Done]) -> Result<(), Failure> {
        let about = self.task.about();
        let steps = self.options(&self.setups[0], None).steps(&*self.task);
        let goal = self.experiment.end.goal.map(|measure| Goal { measure, at: self.experiment.end.at, steps });
        let cells = figures::cells(done, goal);
        let records = figures::records(about.name, &cells);
        let mut text = self.head(steps);
        for table in self.experiment.tables.iter().filter_map(|table| table.text(&records)) {
            text += &format!("\n{table}\n");
        }
        for cell in &cells {
            let (label, skipped) = (cell.setup.label(), cell.sum(|run| run.skipped_rows));
            let overflows = cell.sum(|run| run.overflows.unwrap_or(0));
            if skipped > 0 {
                text += &format!(
                    "\n{label}: {skipped} updates of rows or shared weights were not finite and were skipped: do not trust its loss; lower lr\n"
                );
            }
            if overflows > 0 {
                text += &format!("\n{label}: {overflows} steps overflowed and were skipped\n");
            }
        }
        let first = cells.first().and_then(|cell| cell.figure("test loss"));
        if let Some(([blind, best], loss)) = about.bounds.zip(first) {
            let (loss, share) = (loss.mean, 100.0 * (blind - loss.mean) / (blind - best));
            text += &format!(
                "\nfp32 comes to {loss:.4}: {share:.0} % of the way from the base rate's {blind:.4} to the best reachable {best:.4}\n"
            );
        }
        output::print(text.trim_end())?;
        let failures: Vec<String> = done
            .iter()
            .filter_map(|done| {
                Some(format!("{}, seed {}: {}", done.setup.label(), done.seed, done.outcome.as_ref().err()?))
            })
            .collect();
        let runs = done.iter().filter_map(|done| {
            Some(json!({ "tables": done.setup.label(), "seed": done.seed, "setup": done.setup, "outcome": done.outcome.as_ref().ok()? }))
        });
        let runs: Vec<Value> = runs.collect();
        let head =
            json!({ "part": self.name, "task": about.name, "data": about.source, "runs": runs, "failures": failures });
        if let Some(path) = &options.json {
            report::write_json(path, &head, &records)?;
        }
        if let Some(folder) = &self.folder {
            fs::create_dir_all(folder)?;
            report::write_csv(&folder.join("records.csv"), &records)?;
            report::write_json(&folder.join("report.json"), &head, &records)?;
            output::write_file(&folder.join("report.md"), text.as_bytes())?;
            let mut pictures = Vec::new();
            if self.experiment.skew {
                pictures.extend(skew::chart(about.name, &about.tables, self.batches())?.write(&folder.join("skew"))?);
            }
            for chart in &self.experiment.charts {
                pictures.extend(chart.draw(about.name, &records, folder)?);
            }
            output::note(&format!(
                "records.csv, report.md, report.json and {} pictures are in {}",
                pictures.len(),
                folder.display()
            ));
        }
        if failures.is_empty() {
            return Ok(());
        }
        Err(Failure::Job(anyhow!(
            "{} of {} runs failed, and the same command tries them again: {}",
            failures.len(),
            done.len(),
            failures.join("\n")
        )))
    }

    /// The data, the training, and the meaning of the figures.
    fn head(&self, steps: u64) -> String {
        let about = self.task.about();
        let hyper = &self.setups[0].hyper;
        let small = about.tables.iter().filter(|table| table.rows <= SMALL_TABLE).count();
        let small = if small == 0 {
            String::new()
        } else {
            format!("{small} of {} tables, of at most {SMALL_TABLE} rows, stay FP32 unless named\n", about.tables.len())
        };
        let end = match self.options(&self.setups[0], None).end {
            End::Epochs(1) => "1 epoch".to_owned(),
            End::Epochs(epochs) => format!("{epochs} epochs"),
            End::Steps(steps) => format!("{steps} steps"),
            End::Seconds(seconds) => format!("{seconds} s (which depends on the machine)"),
            End::Goal { every, tested, .. } => {
                format!("until the goal, the first setting for {steps} steps, a test every {every} on {tested} samples")
            }
        };
        format!(
            "{}\n{small}{end}, batches of {}, {} at {}, dense part adagrad at {}{}; seeds: {}\n\
             change: of the test loss against the first setting of the same seed and batch, in percent; ±: its 95 % interval over the seeds\n\
             memory: bytes of tables and cache over bytes of FP32 weights, by the formula of Yang 2020, and with optimiser state and metadata\n\
             moved: bytes to and from the tables' memory in training; for shared arrays an upper bound that ignores overlapping chunks\n",
            about.source,
            hyper.batch,
            hyper.optimizer,
            hyper.lr,
            hyper.dense_lr,
            if hyper.decay { ", both going down to 0" } else { "" },
            self.seeds.len(),
        )
    }

    /// The batches of the first epoch with the first seed.
    fn batches(&self) -> impl Iterator<Item = Batch> {
        let options = self.options(&self.setups[0], None);
        let (samples, size, seed) = (options.samples(&*self.task), options.hyper.batch, self.seeds[0]);
        let order = run::order(samples, seed, 0);
        let starts = (0..samples).step_by(size);
        starts.map(move |at| self.task.train_batch(&order[at..samples.min(at + size)], seed, 0))
    }
}

/// The name of a run: letters, digits, points and dashes of its label.
fn run_name(label: &str, seed: u64) -> String {
    let parts = label.split(|c: char| !(c.is_ascii_alphanumeric() || c == '.')).filter(|part| !part.is_empty());
    parts.chain([format!("seed{seed}").as_str()]).collect::<Vec<_>>().join("-")
}

/// The outcome in a run's file, if there is one. A file of another run is refused, or ignored to be written again.
fn known(file: &Path, identity: &Value, again: bool) -> anyhow::Result<Option<Outcome>> {
    let text = match fs::read(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        text => text.with_context(|| format!("{}: wanted to read a run's file", file.display()))?,
    };
    let of = || {
        format!(
            "{}: wanted the file of a run, found something else; remove it, or choose another --out",
            file.display()
        )
    };
    let mut found: Value = serde_json::from_slice(&text).with_context(of)?;
    // Through text, as the file was written.
    let identity: Value = serde_json::from_str(&identity.to_string())?;
    match difference("run", &identity, &found["run"]) {
        None => Ok(Some(serde_json::from_value(found["outcome"].take()).with_context(of)?)),
        Some(_) if again => Ok(None),
        Some(difference) => bail!(
            "{}: wanted {difference}; results of different runs are kept apart: choose another --out, or the same options",
            file.display()
        ),
    }
}

/// The first difference of two values: "lr = 0.2, found 0.1".
fn difference(name: &str, wanted: &Value, found: &Value) -> Option<String> {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => {
            let names = wanted.keys().chain(found.keys());
            let of = |of: &serde_json::Map<String, Value>, name: &String| of.get(name).cloned().unwrap_or_default();
            names.into_iter().find_map(|name| difference(name, &of(wanted, name), &of(found, name)))
        }
        _ if wanted == found => None,
        _ => Some(format!("{name} = {wanted}, found {found}")),
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
    use crate::task::Bags;

    #[test]
    fn every_part_of_the_data_counts() {
        let of = |batch: &Batch| {
            let mut hasher = Hasher::new();
            add(&mut hasher, batch);
            hasher.finalize()
        };
        let bags = vec![Bags { indices: vec![1, 2, 3], offsets: vec![0, 1, 3] }];
        let batch = Batch { bags, dense: vec![0.5, 0.0], labels: vec![0, 1], samples: 2 };
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
            let mut other = batch.clone();
            change(&mut other);
            assert_ne!(of(&other), of(&batch), "change {at}");
        }
    }

    #[test]
    fn a_file_is_of_its_run_or_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("run.json");
        let run = json!({ "task": "tiny", "setup": { "lr": 0.1f32 } });
        assert!(known(&file, &run, false).unwrap().is_none());
        let outcome = Outcome { loss: 0.1 + 0.2, curve: vec![(5, 0.5)], ..Outcome::default() };
        fs::write(&file, json!({ "run": run, "outcome": outcome }).to_string()).unwrap();
        assert_eq!(known(&file, &run, false).unwrap(), Some(outcome), "the same bits");
        let other = json!({ "task": "tiny", "setup": { "lr": 0.2f32 } });
        let error = known(&file, &other, false).unwrap_err().to_string();
        assert!(error.contains("wanted lr = 0.2") && error.contains("--out"), "{error}");
        assert!(known(&file, &other, true).unwrap().is_none(), "to be made again");
        let error = known(&file, &json!({ "task": "tiny", "setup": {}, "eps": 1 }), false).unwrap_err().to_string();
        assert!(error.contains("eps = 1, found null"), "{error}");
        fs::write(&file, "{").unwrap();
        assert!(known(&file, &run, true).unwrap_err().to_string().contains("found something else"));
    }

    #[test]
    fn runs_have_names_of_their_own() {
        assert_eq!(run_name("int4 stochastic, 0.1 % lfu; batch 64", 3), "int4-stochastic-0.1-lfu-batch-64-seed3");
        assert_eq!(run_name("fp32; C3 int4 stochastic", 0), "fp32-C3-int4-stochastic-seed0");
    }
}
