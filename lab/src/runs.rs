//! The runs of an experiment: each setting with each seed, several at a time. In a folder each has a file, and is not made again.

use crate::batch::Target;
use crate::checkpoints::{self, Keep};
use crate::device::Device;
use crate::end::End;
use crate::experiment::Experiment;
use crate::figures::{self, Cell, Done, Made};
use crate::ranks::Ranks;
use crate::run::{self, Outcome, RunOptions};
use crate::scaling::rate;
use crate::setting::{Setting, Setup};
use crate::tables;
use crate::task::{Bounds, Task, fingerprint};
use crate::tasks;
use anyhow::{Context as _, anyhow, bail};
use hotrow_dist::Comm as _;
use hotrow_report::failure::Failure;
use hotrow_report::options::{Options, whole};
use hotrow_report::output;
use hotrow_report::progress::Progress;
use hotrow_report::records::{self, Unit};
use hotrow_report::trace::Source;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::{fs, num::NonZero, thread};

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
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.resume.as_deref().or(self.out.as_deref())
    }

    /// Refuses options that have no effect, and folders and files that cannot be written, before any data is read.
    pub(crate) fn check(&self, options: &Options, experiment: &Experiment) -> Result<(), Failure> {
        let every = self.checkpoint_every.is_some();
        if every && self.folder().is_none() {
            return Err(Failure::usage("--checkpoint-every: wanted --out DIR beside it, found none; give that"));
        }
        if (every || self.resume.is_some()) && !experiment.may_resume() {
            return Err(Failure::usage("checkpoints: wanted an end by epochs or steps, found a goal or seconds"));
        }
        if let Some(folder) = self.resume.as_deref().filter(|folder| !folder.is_dir()) {
            let name = folder.display();
            return Err(Failure::Usage(format!(
                "--resume: wanted the folder of an earlier --out, found none at {name}"
            )));
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
    /// Loads the task's data, and refuses settings that its tables cannot have.
    pub(crate) fn open(
        (name, experiment): (&'a str, &'a Experiment),
        (options, args): (&Options, &'a RunArgs),
        folder: Option<PathBuf>,
    ) -> Result<Self, Failure> {
        let usage = |error: anyhow::Error| Failure::Usage(format!("{error:#}"));
        let data = options.data();
        let (epochs, setups) = experiment.setups(data.as_deref()).map_err(usage)?;
        let seeds = args.seeds.or(experiment.seeds.map(NonZero::get)).map_or(3, u64::from);
        let seeds: Vec<u64> = (0..seeds).map(|k| options.seed.wrapping_add(k)).collect();
        let task = tasks::open(&experiment.task, &Source { data: data.as_deref(), seed: options.seed })?;
        let device = Device::open(options.backend)?;
        for setup in &setups {
            let choice = setup.choice(&task.about().tables, experiment.task.small_table()).map_err(usage)?;
            let on_device = |setting: &Setting| setting.mapped || setting.pages_percent > 0.0;
            if device.shared.is_none() && choice.iter().any(on_device) {
                let label = setup.label();
                return Err(Failure::Usage(format!(
                    "{label}: wanted a run on a device, found one on the processor; take --backend gpu, and a build with --features gpu"
                )));
            }
            tables::check(&task.about().tables, &choice, &setup.hyper)
                .map_err(|error| Failure::Usage(format!("{}: {error}", setup.label())))?;
        }
        Ok(Self { name, experiment, args, folder, task, epochs, setups, seeds, device })
    }

    fn choice(&self, setup: &Setup) -> anyhow::Result<Vec<Setting>> {
        setup.choice(&self.task.about().tables, self.experiment.task.small_table())
    }

    /// Every setup with every seed. The runs of a seed, which are compared, are neighbours, so that a busy machine slows all of them.
    fn each(&self, setups: &[Setup]) -> Vec<(Setup, u64)> {
        self.seeds.iter().flat_map(|&seed| setups.iter().map(move |setup| (setup.clone(), seed))).collect()
    }

    fn options(&self, setup: &Setup, best: Option<f64>) -> RunOptions {
        let (limit, end) = (self.experiment.task.limit(), self.experiment.end.of(self.epochs));
        let mut options = RunOptions { hyper: setup.hyper, end, limit, device: self.device.clone() };
        if let Some(goal) = &self.experiment.goal {
            options.end = goal.of(options.steps(&*self.task), best);
        }
        options
    }

    fn keep(&self, setup: &Setup, seed: u64) -> Keep {
        let folder = self.folder.as_ref().map(|folder| folder.join("checkpoints").join(run_name(&setup.label(), seed)));
        let (every, resume) = (self.args.checkpoint_every, self.args.resume.is_some());
        Keep { folder: folder.unwrap_or_default(), every, resume }
    }

    /// Refuses a resume with other options than the checkpoints'. A run without one is compared with the nearest of those that no run has.
    pub(crate) fn check_resume(&self, ranks: Option<Ranks<'_>>) -> Result<(), Failure> {
        let (Some(_), Some(folder)) = (&self.args.resume, &self.folder) else { return Ok(()) };
        let runs = self.each(&self.setups);
        let own: Vec<PathBuf> = runs.iter().map(|(setup, seed)| self.keep(setup, *seed).folder).collect();
        let others = fs::read_dir(folder.join("checkpoints")).into_iter().flatten().flatten();
        let others: Vec<PathBuf> = others.map(|other| other.path()).filter(|path| !own.contains(path)).collect();
        let mut lines: Vec<String> = Vec::new();
        for ((setup, seed), own) in runs.iter().zip(&own) {
            let (task, options) = (&*self.task, self.options(setup, None));
            let asked = run::identity(task, &self.choice(setup)?, *seed, &options, ranks)?;
            let of = |folder: &PathBuf| checkpoints::compare(folder, &asked, options.steps(task)).transpose();
            let nearest = || others.iter().filter_map(of).min_by_key(|lines| lines.as_ref().map_or(0, Vec::len));
            let found = of(own).or_else(nearest).transpose()?.unwrap_or_default();
            lines.retain(|line| !found.contains(line));
            lines.extend(found);
        }
        let wanted = "wanted the options of its checkpoints, found others; give those, or train anew with --out";
        let refusal = || Failure::Usage(format!("--resume {}: {wanted}:{}", folder.display(), lines.concat()));
        if lines.is_empty() { Ok(()) } else { Err(refusal()) }
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

    /// Makes the runs that are missing. A run that fails is among the results, and the others go on.
    pub(crate) fn run(&self) -> anyhow::Result<Vec<Done>> {
        let progress = self.progress();
        let Some(goal) = self.experiment.goal.filter(|goal| goal.at.is_none()) else {
            let at = self.experiment.goal.and_then(|goal| goal.at);
            return self.run_all(&self.setups, &progress, &|_| at);
        };
        // The first setting sets the goal of each seed.
        let mut done = self.run_all(&self.setups[..1], &progress, &|_| None)?;
        let best = |seed: u64| {
            let first = done.iter().find(|done| done.seed == seed);
            first.and_then(|done| goal.measure.best(&done.outcome.as_ref().ok()?.curve)).or(Some(f64::NAN))
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
        let by_device = if self.device.context.is_none() { cores } else { 1 };
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

    /// The outcome of a run, from its file or made now. A file appears whole or not at all; a run that failed has none. Its name has a hash of
    /// all that the result depends on.
    fn kept_or_made(&self, setup: &Setup, seed: u64, best: Option<f64>, progress: &Progress) -> anyhow::Result<Made> {
        let identity = self.identity(setup, seed, best)?;
        let hash = crc32fast::hash(identity.to_string().as_bytes());
        let name = format!("{}-{hash:08x}.json", run_name(&setup.label(), seed));
        let file = self.folder.as_ref().map(|folder| folder.join("runs").join(name));
        if let Some(file) = file.as_ref().filter(|file| file.exists()) {
            progress.advance(self.options(setup, best).steps(&*self.task));
            let of = || format!("{}: wanted the file of a run; remove it", file.display());
            let mut kept: Value = serde_json::from_slice(&fs::read(file).with_context(of)?).with_context(of)?;
            return Ok(Ok(serde_json::from_value(kept["outcome"].take()).with_context(of)?));
        }
        // A pool of one thread, so that a run uses one core.
        let alone = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
        let made = alone.install(|| self.train(setup, seed, best, Some(progress), None));
        if let Some((file, outcome)) = file.zip(made.as_ref().ok()) {
            fs::create_dir_all(file.parent().unwrap_or(&file))?;
            let text = serde_json::to_vec_pretty(&json!({ "run": identity, "outcome": outcome }))?;
            output::replace(&file, |to| Ok(std::io::Write::write_all(to, &text)?))
                .map_err(|failure| anyhow!("{failure}"))?;
        }
        Ok(made.map_err(|error| format!("{error:#}")))
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
        let choice = self.choice(setup)?;
        let watch = |steps| progress.into_iter().for_each(|progress| progress.advance(steps));
        let done = run::run(task, &choice, seed, &options, &self.keep(setup, seed), &watch, ranks)?;
        watch(options.steps(task).saturating_sub(done.steps));
        Ok(done)
    }

    /// Everything that a run's result depends on.
    fn identity(&self, setup: &Setup, seed: u64, best: Option<f64>) -> anyhow::Result<Value> {
        let about = self.task.about();
        Ok(json!({
            "task": about.name, "model": about.model, "data": about.source, "fingerprint": fingerprint(&*self.task)?, "limit": self.experiment.task.limit(),
            "small_table": self.experiment.task.small_table(),
            "backend": if self.device.context.is_none() { "cpu" } else { "gpu" }, "end": self.experiment.end, "goal": self.experiment.goal,
            // JSON gives a goal back with another last bit of its f64.
            "best": best.map(|best| best as f32), "steps": self.options(setup, best).steps(&*self.task), "seed": seed, "setup": setup,
        }))
    }

    /// Prints the results, and writes them to the folder and to `--json`. Runs that failed are an error in the end.
    pub(crate) fn show(&self, options: &Options, done: &[Done]) -> Result<(), Failure> {
        let about = self.task.about();
        let first = self.options(&self.setups[0], None);
        let steps = first.steps(&*self.task);
        let cells = figures::cells(done, self.experiment.goal.map(|goal| (goal, steps)));
        let records = figures::records(about.name, &cells);
        let mut text = self.head(&first);
        for table in self.experiment.tables.iter().filter_map(|table| table.text(&records)) {
            text += &format!("\n{table}\n");
        }
        for what in ["accuracy", "AUC"] {
            let shown = self.experiment.tables.iter().any(|table| table.has(what));
            if shown && !records.is_empty() && cells.iter().all(|cell| cell.figure(what).is_none()) {
                let why = match about.target {
                    Target::Classes(classes) => format!("it compares two classes, and this task has {classes}"),
                    Target::Binary if what == "AUC" => "all labels of the test set are alike".to_owned(),
                    Target::Binary => "a sample has several labels".to_owned(),
                };
                text += &format!("\n{what}: none, since {why}\n");
            }
        }
        let warnings: Vec<String> = cells.iter().flat_map(Cell::warnings).collect();
        let lines = warnings.iter().map(|warning| format!("\nwarning: {warning}")).collect::<String>();
        text += &if lines.is_empty() { lines } else { lines + "\n" };
        let loss = cells.first().and_then(|cell| cell.figure("test loss"));
        if let Some((bounds, loss)) = about.bounds.zip(loss.map(|loss| loss.mean)) {
            let Bounds { blind, floor, best } = bounds;
            let way = |loss| match bounds.way(loss) {
                way if way < 0.0 => "none".to_owned(),
                way => format!("{way:.0} %"),
            };
            let (share, of_floor, loss) = (way(loss), way(floor), Unit::Score.show(loss));
            text += &format!(
                "\nfp32 comes to {loss}: {share} of the way from the base rate's {blind:.4} to the best reachable {best:.4}; the floor, which is the \
                 best without the rows of the large tables, is {floor:.4}: {of_floor} of the way\n"
            );
        }
        output::print(text.trim_end())?;
        let (mut runs, mut failures) = (Vec::new(), Vec::new());
        for Done { setup, seed, outcome } in done {
            let tables = setup.label();
            match outcome {
                Ok(outcome) => runs.push(json!({ "tables": tables, "seed": seed, "setup": setup, "outcome": outcome })),
                Err(reason) => failures.push(format!("{tables}, seed {seed}: {reason}")),
            }
        }
        let head = json!({ "part": self.name, "task": about.name, "model": about.model, "data": about.source, "runs": runs, "failures": failures, "warnings": warnings });
        if let Some(path) = &options.json {
            records::write_json(path, &head, &records)?;
        }
        // Runs that failed leave the results of those before them.
        let whole = failures.is_empty() || (failures.len() < done.len() && self.args.resume.is_none());
        if let Some(folder) = self.folder.as_ref().filter(|_| whole) {
            fs::create_dir_all(folder)?;
            output::write_file(&folder.join("report.md"), text.as_bytes())?;
            records::write_csv(&folder.join("records.csv"), &records, &[])?;
            let charts = self.experiment.charts.iter().map(|chart| chart.draw(about.name, &records, folder));
            let pictures = charts.collect::<anyhow::Result<Vec<_>>>()?.concat().len();
            output::note(&format!("records.csv, report.md and {pictures} pictures are in {}", folder.display()));
        }
        if failures.is_empty() {
            return Ok(());
        }
        let (failed, all, reasons) = (failures.len(), done.len(), failures.join("\n"));
        Err(Failure::Job(anyhow!("{failed} of {all} runs failed, and the same command tries them again: {reasons}")))
    }

    /// The data, the training, and the meaning of the figures.
    fn head(&self, first: &RunOptions) -> String {
        let (about, RunOptions { hyper, end, .. }) = (self.task.about(), first);
        let most = self.experiment.task.small_table();
        let small = about.tables.iter().filter(|table| table.rows <= most).count();
        let (tables, seeds) = (about.tables.len(), self.seeds.len());
        let [lr, dense_lr] = [hyper.lr, hyper.dense_lr].map(rate);
        let end = match end {
            End::Epochs(epochs) => format!("epochs: {epochs}"),
            End::Steps(steps) => format!("steps: {steps}"),
            End::Seconds(seconds) => format!("seconds, which depend on the machine: {seconds}"),
            End::Goal { every, tested, most, .. } => {
                format!("to the goal; steps of the first setting: {most}, a test every {every} on {tested} samples")
            }
        };
        let decay = if hyper.decay { ", both going down to 0" } else { "" };
        format!(
            "{}\ntables: {tables}, of which {small} of at most {most} rows stay FP32 unless named; seeds: {seeds}\n\
             {end}; batches of {}, {} at {lr}, dense part adagrad at {dense_lr}{decay}, where a line names no others\n",
            about.source, hyper.batch, hyper.optimizer,
        )
    }
}

/// The name of a run: letters, digits, points and dashes of its label.
fn run_name(label: &str, seed: u64) -> String {
    let parts = label.split(|c: char| !(c.is_ascii_alphanumeric() || c == '.')).filter(|part| !part.is_empty());
    parts.chain([format!("seed{seed}").as_str()]).collect::<Vec<_>>().join("-")
}
