//! `hotrow bench suite`: every kernel and whole steps at named shapes, each against the device's own copy bandwidth and the goals.

mod bytes;
mod cases;
mod copy;
mod draw;
mod pinned;
pub(super) mod shapes;
mod size;
mod sort;
mod staged;
mod transfers;
pub(super) mod workload;

pub(super) use pinned::apart;
pub(super) use size::Size;

use super::Common;
use crate::failure::Failure;
use crate::lab::{Complaints, Deadline, Lab};
use crate::names::value_name;
use crate::options::{Backend, Options};
use crate::output;
use crate::plot::{Bars, Chart, Style};
use crate::report::run::{Machine, Run};
use crate::report::{Record, table};
use anyhow::Context as _;
use clap::ValueEnum;
use hotrow::adapter;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Every kernel and whole steps at named shapes, against the device's own copy bandwidth and the goals
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    common: Common,
    /// Sizes [default: full, small on a software driver]
    #[arg(long, value_enum)]
    size: Option<Size>,
    /// Parts [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// JSON that `benches/side_by_side.py` wrote on the same machine, for the goals that compare; may be given again
    #[arg(long, value_name = "FILE")]
    beside: Vec<PathBuf>,
    /// Seconds after which no further part is begun [default: 240, small 90]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: Option<u64>,
}

/// A part of the suite. In this order: short ones and those that decide a goal come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// All rows resident: gather, forward, backward
    Hits,
    /// NVIDIA's shape
    Nvidia,
    /// 95 % hits, the rest over the bus; unified memory
    Bus,
    /// No cache: FP32 and INT8 rows over the bus
    Uncached,
    /// 95 % hits, staged with the next batch prefetched and without, against mapped; bytes counted against bytes copied
    Staged,
    /// A cache larger than a binding
    Windows,
    /// The sort alone
    Sort,
    /// Time against work
    Scaling,
    /// One row takes a tenth of the accesses
    Skew,
    /// SGD, row-wise and element-wise AdaGrad
    Optimizers,
    /// Hot rows pinned: caches of 128 to 1024 MB against none, hot batches, an epoch
    Pinned,
    /// A thousand indices
    Small,
    /// Shaders with wgpu's runtime checks and without
    Trusted,
    /// TBE's shape
    Tbe,
}

/// Figures of other libraries on the same machine.
#[derive(Debug)]
struct Beside(Vec<serde_json::Value>);

impl Beside {
    fn read(paths: &[PathBuf]) -> anyhow::Result<Self> {
        let read = |path: &PathBuf| {
            let wanted = || format!("{}: wanted JSON as benches/side_by_side.py writes it", path.display());
            serde_json::from_str(&std::fs::read_to_string(path).with_context(wanted)?).with_context(wanted)
        };
        paths.iter().map(read).collect::<anyhow::Result<_>>().map(Self)
    }

    /// `sorts` is a list of `{"name", "pairs", "pairs_per_second"}`.
    fn pairs_per_second(&self, name: &str, pairs: u32) -> Option<f64> {
        let sorts = self.0.iter().filter_map(|value| value["sorts"].as_array()).flatten();
        let mut found = sorts.filter(|sort| sort["name"] == name && sort["pairs"] == pairs);
        found.find_map(|sort| sort["pairs_per_second"].as_f64())
    }
}

/// What all parts share.
struct Bench<'a> {
    lab: &'a Lab,
    size: Size,
    seed: u32,
    deadline: Deadline,
    /// Bytes a second of the best copy within device memory, and from mapped host memory.
    copy: Option<f64>,
    bus: Option<f64>,
    beside: Beside,
    run: Run,
}

/// Runs the suite.
pub(super) fn run(options: &Options, args: &Args) -> Result<(), Failure> {
    if options.backend == Backend::Cpu {
        return Err(Failure::Usage(
            "bench suite: wanted a GPU backend, found --backend cpu; the suite measures kernels".into(),
        ));
    }
    args.common.make_folder()?;
    let beside = Beside::read(&args.beside)?;
    let context = match options.backend {
        Backend::Gpu => adapter::open_best(adapter::Wanted::Any)?,
        // One sentence, and how to have it all the same.
        _ => adapter::open_best(adapter::Wanted::Hardware)
            .map_err(|error| anyhow::anyhow!("{error}; --backend gpu takes a software driver too"))?,
    };
    let complaints = Complaints::of(&context);
    let hardware = context.caps().is_hardware();
    let size = args.size.unwrap_or(if hardware { Size::Full } else { Size::Small });
    let deadline = Deadline::new(Duration::from_secs(args.seconds.unwrap_or(size.seconds())));
    let lab = Lab::new(&context, size.rounds());
    let mut run = args.common.start(options, "bench suite", size.name());
    run.on(Machine::of(&context));
    let seed = options.group_seed();
    let mut bench = Bench { lab: &lab, size, seed, deadline, copy: None, bus: None, beside, run };
    copy::all(&mut bench)?;
    let copies = bench.run.records.len();
    let parts = Part::value_variants().iter().copied();
    for part in parts.filter(|part| args.only.is_empty() || args.only.contains(part)) {
        let name = value_name(&part);
        if let Some(reason) = deadline.over() {
            bench.run.leave_out(name, reason);
            continue;
        }
        let start = deadline.seconds();
        let done = match part {
            Part::Hits => cases::hits(&mut bench),
            Part::Nvidia => cases::nvidia(&mut bench),
            Part::Bus => transfers::over_the_bus(&mut bench),
            Part::Uncached => transfers::uncached(&mut bench),
            Part::Staged => staged::run(&mut bench),
            Part::Windows => transfers::windows(&mut bench),
            Part::Sort => sort::run(&mut bench),
            Part::Scaling => cases::scaling(&mut bench),
            Part::Skew => cases::skew(&mut bench),
            Part::Optimizers => cases::optimizers(&mut bench),
            Part::Pinned => pinned::run(&mut bench),
            Part::Small => cases::small(&mut bench),
            Part::Trusted => cases::trusted(&mut bench),
            Part::Tbe => cases::tbe(&mut bench),
        };
        // A part that does not fit this device takes nothing away from the others.
        if let Err(error) = done {
            bench.run.leave_out(name.clone(), format!("{error:#}"));
        }
        if let Some(error) = complaints.first() {
            bench.run.leave_out(name.clone(), format!("its figures are not to be trusted: {error}"));
        }
        output::note(&format!("suite: {name} took {:.1} s", deadline.seconds() - start));
    }
    let mut run = bench.run;
    run.judge(hardware && size.is_full(), deadline.seconds());
    let charts = charts(&run, &args.common.out)?;
    let tables = tables(&run);
    args.common.finish(options, &run, "suite", (&tables, tables.len()), &charts)?;
    let goals = args.common.out.join("goals.md");
    output::write_file(&goals, run.goal_table().as_bytes())?;
    output::print(&format!("wrote {}", goals.display()))?;
    // Speed is for the reader to judge; this is not.
    if !run.wrong.is_empty() {
        return Err(anyhow::anyhow!("bench suite: {}", run.wrong.join("; ")).into());
    }
    if run.records.len() == copies {
        let why: Vec<&str> = run.reasons().into_iter().map(|(_, why)| why).collect();
        return Err(anyhow::anyhow!("bench suite: wanted measurements, found none: {}", why.join("; ")).into());
    }
    Ok(())
}

/// Shapes with tables of their own; all others are workloads.
const OTHERS: [&str; 5] = ["copy", "sort", "scaling", "pinned", "epoch"];

fn tables(run: &Run) -> Vec<(String, Option<String>)> {
    let of = |shape: &'static str| run.records.iter().filter(move |record| record.shape == shape);
    let workloads = || run.records.iter().filter(|record| !OTHERS.contains(&record.shape.as_str()));
    let phases =
        workloads().filter(|record| record.key("kernel").is_none() && workload::SHOWN.contains(&&*record.what));
    let kernels = workloads().filter(|record| record.key("minor").is_none() && record.key("kernel").is_some());
    let compared = workloads().filter(|record| record.what.contains("against") || record.what.contains(" of "));
    let others = workloads().filter(|record| record.key("kernel").is_none() && staged::SHOWN.contains(&&*record.what));
    let title = |text: &str| text.to_owned();
    vec![
        (title("The device's own copies."), table(of("copy"), &["path", "how"], "what")),
        (
            title("Whole phases. Logical is TBE's measure; table bytes cross the bus where mapped."),
            table(phases, &["shape"], "what"),
        ),
        (
            title("Kernels that take 2 % of their phase or more, and the bytes that each must move."),
            table(kernels, &["shape", "phase", "kernel"], "what"),
        ),
        (title("Steps one after the other, by the host's clock."), table(others, &["shape"], "what")),
        (title("Shares and comparisons."), table(compared, &["shape", "what"], "unit")),
        (
            title(
                "Hot rows pinned, in the shape of SCARS's Tables I to IV; batches as they come, hot, normal, and with the same hit rate.",
            ),
            table(of("pinned"), &["batches", "placement", "cache MB", "batch"], "what"),
        ),
        (title("An epoch of those steps (SCARS, Tables V and VI)."), table(of("epoch"), &["batch"], "what")),
        (
            title("Sort of pairs of 32-bit keys and values, and a stable sort on the host's cores."),
            table(of("sort"), &["pairs", "key bits"], "what"),
        ),
        (
            title("Time against work: whole steps over distinct rows, all resident."),
            table(of("scaling"), &["distinct"], "what"),
        ),
    ]
}

/// Workloads whose kernels are drawn: one of each kind. All are in the tables.
const DRAWN: [&str; 6] =
    ["hits-uniform", "hits-zipf", "windows-large", "nvidia-row-wise", "mapped-int8", "tbe-1.15-int8"];

/// Kernels against the copy, time against work, goals: those that there are figures for.
fn charts(run: &Run, out: &Path) -> anyhow::Result<Vec<[PathBuf; 2]>> {
    let mut kernels = Bars::new("Bytes that must move a second, % of the device's own copy");
    kernels.title = format!("Kernels: {}", run.title());
    for record in run.records.iter().filter(|record| record.what == "of copy" && record.value >= 1e-4) {
        let key = |name| record.key(name).map_or_else(String::new, |value| value.to_string());
        if record.shape == "sort" {
            kernels.record(&format!("sort: {} pairs, {} bits", key("pairs"), key("key bits")), record);
        } else if DRAWN.contains(&record.shape.as_str()) && record.key("minor").is_none() {
            kernels.record(&format!("{}: {}, {}", record.shape, key("kernel"), key("phase")), record);
        }
    }
    let mut work = Chart::new("Distinct rows in a step, or pairs sorted", "Time");
    work.title = format!("Time against work: {}", run.title());
    (work.log_x, work.log_y) = (true, true);
    let timed = |record: &&Record| {
        record.shape == "scaling" && ["step", "forward", "backward"].contains(&record.what.as_str())
            || record.shape == "sort" && record.what == "sort, 32 bits"
    };
    let colour =
        |record: &Record| ["forward", "backward", "sort, 32 bits"].iter().position(|what| record.what == *what);
    let style = |record: &Record| Style { colour: colour(record).unwrap_or(6), dashed: false, markers: true };
    let at = |record: &Record| record.setting.number("distinct").or(record.setting.number("pairs"));
    work.lines(run.records.iter().filter(timed), "what", at, style);
    let mut goals = Bars::new("Reached, % of the goal (100 and above: reached)");
    goals.title = format!("Goals: {}", run.title());
    goals.mark = Some(100.0);
    for goal in run.measured_goals() {
        goals.push(&goal.title(), 100.0 * goal.progress.unwrap_or(f64::NAN));
    }
    let mut written = Vec::new();
    for (name, bars) in [("suite-kernels", kernels), ("suite-goals", goals)] {
        if !bars.bars.is_empty() {
            written.push(bars.write(&out.join(name))?);
        }
    }
    if !work.series.is_empty() {
        written.push(work.write(&out.join("suite-work"))?);
    }
    Ok(written)
}
