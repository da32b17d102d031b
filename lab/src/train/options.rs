//! The options of `hotrow train` and its modes. An option without an effect beside the others is refused by name, before any data is read.

use super::asked::{Cells, FORM, Lists, Rule, TableSetting, refuse};
use super::scaling::{self, Scaling};
use super::tasks::{TaskArgs, TaskName};
use hotrow_cli::failure::Failure;
use hotrow_cli::names::{one_of, value_name};
use hotrow_cli::options::{Options, whole};
use hotrow_cli::output;
use hotrow::{OptimizerKind, StatePrecision};
use std::path::PathBuf;

/// Measure test loss against precision, rounding, policy and cache size
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(super) mode: Option<Mode>,
    #[command(flatten)]
    pub(super) compare: CompareArgs,
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum Mode {
    /// Run every cell of a grid for every seed; runs in --out are not repeated
    Grid(GridArgs),
    /// Propose precision, policy and cache share of each table from its first accesses and short runs
    Profile(ProfileArgs),
    /// Train each setting until it reaches the full FP32 table's loss; compare steps, time and bytes. Learning rates are constant
    Until(UntilArgs),
}

/// The task and its training.
#[derive(Debug, clap::Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    pub(super) task: TaskArgs,
    /// Passes over the training set [default: the task's own]
    #[arg(long, value_name = "N", value_parser = whole(1..=u32::MAX))]
    pub(super) epochs: Option<u32>,
    /// Update rule of the tables [default: the task's own]
    #[arg(long, value_parser = one_of(OptimizerKind::ALL))]
    pub(super) optimizer: Option<OptimizerKind>,
    /// Type of the optimiser's state of an element in tables below FP32 [default: fp16]
    #[arg(long, value_parser = one_of([StatePrecision::Fp16, StatePrecision::Int8]))]
    pub(super) state: Option<StatePrecision>,
    /// Learning rate of the tables [default: the task's own]
    #[arg(long, value_name = "X", value_parser = rate)]
    pub(super) lr: Option<f32>,
    /// Learning rate of the dense part, which AdaGrad updates [default: the task's own]
    #[arg(long, value_name = "X", value_parser = rate)]
    pub(super) dense_lr: Option<f32>,
    /// Lower both rates to 0 in equal steps [default: the task's own]
    #[arg(long, value_name = "BOOL")]
    pub(super) decay: Option<bool>,
    /// Scale of the loss, which puts the tables' gradients into FP16: none, static:S, backoff, log-normal, log-normal-original
    #[arg(long, value_name = "SCALE", default_value = "none", value_parser = scaling::parse)]
    pub(super) loss_scale: Scaling,
    /// Runs of each setting, each with a seed of its own
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = whole(1u32..=1000))]
    pub(super) seeds: u32,
    /// Runs at a time, each on one core [default: the number of cores; 1 on a GPU]
    #[arg(long, value_name = "N", value_parser = whole(1u32..=1024))]
    pub(super) jobs: Option<u32>,
}

#[derive(Debug, clap::Args)]
pub(super) struct CompareArgs {
    #[command(flatten)]
    pub(super) run: RunArgs,
    #[command(flatten)]
    pub(super) lists: Lists,
    /// A setting to compare with the others and with FP32. KIND is cached (options precision, rounding, cache-percent, policy, ways) or
    /// robe (options compression or weights of the array that the tables share, chunk, precision, rounding). With NAME= only the table
    /// of that name gets the setting. May be given several times
    #[arg(long, value_name = FORM)]
    pub(super) table: Vec<TableSetting>,
    /// Samples in a batch; several sizes are compared [default: the task's own]
    #[arg(long, value_name = "N[,N]", value_delimiter = ',', value_parser = whole(1u32..=1 << 20))]
    pub(super) batch: Vec<u32>,
    /// With several batch sizes: train each run for this many seconds instead of epochs
    #[arg(long, value_name = "S", value_parser = seconds, conflicts_with = "epochs")]
    pub(super) seconds: Option<f64>,
    /// Keep a checkpoint of each run in --out every N steps
    #[arg(long, value_name = "N", value_parser = whole(1..=u64::MAX))]
    pub(super) checkpoint_every: Option<u64>,
    /// Continue from the checkpoints in DIR, an earlier --out; runs without one start anew
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    pub(super) resume: Option<PathBuf>,
    /// Folder of the checkpoints, or of the chart of several --batch sizes
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// The old spelling of `train grid --plots`
    #[arg(long, requires = "out", hide = true)]
    pub(super) plots: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct OneBatch {
    /// Samples in a batch [default: the task's own]
    #[arg(long, value_name = "N", value_parser = whole(1u32..=1 << 20))]
    pub(super) batch: Option<u32>,
}

#[derive(Debug, clap::Args)]
pub(super) struct GridArgs {
    #[command(flatten)]
    pub(super) run: RunArgs,
    #[command(flatten)]
    pub(super) size: OneBatch,
    #[command(flatten)]
    pub(super) lists: Lists,
    /// Cells of the grid, narrowed by --precision, --rounding, --policy, --cache-percent and --ways [default: full for author, else claims]
    #[arg(long, value_enum)]
    pub(super) cells: Option<Cells>,
    /// Draw charts and tables of the runs in --out again without running anything
    #[arg(long, requires = "out")]
    pub(super) plots: bool,
    /// Folder of the runs, tables and charts [default: train-TASK]
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(super) struct ProfileArgs {
    #[command(flatten)]
    pub(super) run: RunArgs,
    #[command(flatten)]
    pub(super) size: OneBatch,
    /// Folder of a grid's runs to check the proposals with [default: train-TASK]
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(super) struct UntilArgs {
    /// Most steps of a setting, as a multiple of the full table's
    #[arg(value_name = "N", value_parser = whole(1u32..=1000), required_unless_present = "plots")]
    pub(super) times: Option<u32>,
    #[command(flatten)]
    pub(super) run: RunArgs,
    #[command(flatten)]
    pub(super) size: OneBatch,
    #[command(flatten)]
    pub(super) lists: Lists,
    /// A setting to compare with the full FP32 table, or the setting of one table, as in `hotrow train`. May be given several times
    #[arg(long, value_name = FORM)]
    pub(super) table: Vec<TableSetting>,
    /// Steps of the full table; the lowest test loss in them is the goal [default: those of --epochs]
    #[arg(long, value_name = "S", value_parser = whole(1u64..=1_000_000_000), conflicts_with = "epochs")]
    pub(super) goal_steps: Option<u64>,
    /// Steps from one test to the next [default: a fortieth of the full table's]
    #[arg(long, value_name = "K", value_parser = whole(1u64..=1_000_000_000))]
    pub(super) test_every: Option<u64>,
    /// Samples of each test, the first of the test set
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = whole(1..=u32::MAX))]
    pub(super) tested: u32,
    /// Learning rates of the tables to choose from, for each setting by a run of half the full table's steps [default: a third of --lr,
    /// --lr, three times --lr]
    #[arg(long, value_name = "X[,X]", value_delimiter = ',', value_parser = rate, conflicts_with = "lr")]
    pub(super) rates: Vec<f32>,
    /// Draw the pictures of the results in --out again without running anything
    #[arg(long, requires = "out")]
    pub(super) plots: bool,
    /// Folder of the results
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
}

/// A finite number above 0.
fn rate(text: &str) -> Result<f32, String> {
    let rate = text.trim().parse().ok().filter(|rate: &f32| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| "wanted a finite number above 0".to_owned())
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.trim().parse().ok().filter(|&seconds| seconds > 0.0 && seconds <= 1e6);
    seconds.ok_or_else(|| "wanted a number above 0, at most 1000000".to_owned())
}

impl RunArgs {
    /// Refuses the first option that has no effect, for the task or by the rules in `more`, and a `--json` that cannot be written.
    pub(super) fn check(&self, options: &Options, more: impl IntoIterator<Item = Rule>) -> Result<(), Failure> {
        let (args, task) = (&self.task, self.task.name(options));
        let unless = |wanted: TaskName| (task != wanted).then(|| value_name(&task));
        let of_task = [
            ("--sentences", args.sentences, "--task author", unless(TaskName::Author)),
            ("--criteo", args.criteo.is_some(), "--task dlrm", unless(TaskName::Dlrm)),
            ("--cardinalities", args.cardinalities.is_some(), "--task dlrm", unless(TaskName::Dlrm)),
        ];
        refuse(of_task.into_iter().chain(more)).map_err(Failure::Usage)?;
        output::check_files(options.json.as_deref(), None, &[], args.criteo.as_slice())
    }
}

impl CompareArgs {
    pub(super) fn check(&self, options: &Options) -> Result<(), Failure> {
        let several = self.batch.len() > 1;
        let (every, resume) = (self.checkpoint_every.is_some(), self.resume.is_some());
        let sizes = || several.then(|| self.batch.len().to_string());
        let none = |there: bool| (!there).then(|| "none".to_owned());
        let rules = [
            ("--seconds", self.seconds.is_some(), "several --batch sizes", (!several).then(|| "one".to_owned())),
            ("--table", !self.table.is_empty(), "one --batch size", sizes()),
            ("--checkpoint-every", every, "one --batch size", sizes()),
            ("--resume", resume, "one --batch size", sizes()),
            ("--checkpoint-every", every, "--out DIR", none(self.out.is_some() || resume)),
            ("--out", self.out.is_some(), "--checkpoint-every or several --batch sizes", none(several || every)),
        ];
        self.run.check(options, self.lists.rules().into_iter().chain(rules))
    }
}

impl UntilArgs {
    pub(super) fn check(&self, options: &Options) -> Result<(), Failure> {
        let alone = self.table.is_empty() && !self.lists.any();
        let settings = "settings to compare with the full table (--table robe:compression=100, say)";
        let rules = [
            ("until", alone, settings, Some("none".to_owned())),
            ("--decay", self.run.decay == Some(true), "constant rates", Some("true".to_owned())),
        ];
        self.run.check(options, self.lists.rules().into_iter().chain(rules))
    }
}
