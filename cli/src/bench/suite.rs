//! `hotrow bench suite`: every kernel and whole steps at named shapes, each against the device's own copy bandwidth and the goals.

mod bench;
mod bytes;
mod cases;
mod copy;
mod draw;
mod feedback;
mod full;
mod grid;
mod model;
mod pinned;
mod readers;
mod screen;
pub(super) mod shapes;
mod size;
mod sort;
mod staged;
mod transfers;
pub(super) mod workload;

pub(super) use size::Size;

use super::common::{Common, Table};
use crate::failure::Failure;
use crate::lab::{Complaints, Deadline, Lab};
use crate::options::{Backend, Options, whole};
use crate::output;
use crate::plot::{Chart, Style};
use crate::report::run::{Machine, Run};
use crate::report::{Record, Select, Unit};
use bench::{Bench, Beside};
use clap::builder::{PossibleValue, PossibleValuesParser};
use hotrow::{Error, adapter};
use model::Machine as Model;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Measure every kernel and whole steps at named shapes, against the device's own copy bandwidth and the goals
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    common: Common,
    /// Sizes [default: full, small on a software driver]
    #[arg(long, value_enum)]
    size: Option<Size>,
    /// Parts [default: all but nvidia-full]
    #[arg(long, value_delimiter = ',', value_parser = part_names())]
    only: Vec<String>,
    /// JSON of `benches/side_by_side.py` from the same machine, for goals that compare. May be given several times
    #[arg(long, value_name = "FILE")]
    beside: Vec<PathBuf>,
    /// Predict the goals on a machine from a model of the kernels, beside what is measured; without a device, or with --backend cpu, alone
    #[arg(long, value_name = "MACHINE", value_parser = PossibleValuesParser::new(model::names()))]
    predict: Option<String>,
    /// Seconds after which no further part begins [default: 240, small 90]
    #[arg(long, value_name = "S", value_parser = whole(1u64..=3600))]
    seconds: Option<u64>,
}

impl Args {
    /// Whether to measure a part. The whole shape of NVIDIA is for those who name it.
    fn asks_for(&self, part: &str) -> bool {
        self.only.iter().any(|asked| asked == part) || (self.only.is_empty() && part != FULL)
    }

    /// Whether to predict a part.
    fn predicts(&self, part: &str) -> bool {
        self.asks_for(part) || (self.only.is_empty() && part == FULL)
    }
}

type Measure = fn(&mut Bench<'_>) -> anyhow::Result<()>;

/// The parts of the suite. Short parts and parts that decide a goal come first.
const PARTS: [(&str, &str, Measure); 19] = [
    ("hits", "All rows resident: gather, forward, backward", cases::hits),
    ("nvidia", "NVIDIA's shape", cases::nvidia),
    ("bus", "95 % hits, the rest over the bus; unified memory", transfers::over_the_bus),
    ("uncached", "No cache: FP32 and INT8 rows over the bus", transfers::uncached),
    (
        "staged",
        "95 % hits, staged with the next batch prefetched and without, against mapped; bytes counted against bytes copied",
        staged::run,
    ),
    ("windows", "A cache larger than a binding", transfers::windows),
    ("feedback", "The rows that a frame wants; the host's part of a thousand misses", feedback::run),
    (DRAWS, "A row a pixel read by the caller's own shaders, flushed and cached, against a raw read", readers::run),
    ("grid", "Steps of a hash grid: 2^18 points, tables against arrays, a sort against atomic additions", grid::run),
    ("sort", "The sort alone", sort::run),
    ("scaling", "Time against work", cases::scaling),
    ("skew", "One row takes a tenth of the accesses", cases::skew),
    ("optimizers", "SGD, row-wise and element-wise AdaGrad", cases::optimizers),
    ("pinned", "Hot rows pinned: caches of 128 to 1024 MB against none, hot batches, an epoch", pinned::run),
    ("small", "A thousand indices", cases::small),
    ("lookups", "The bodies that look up rows, side by side", cases::lookups),
    ("trusted", "Shaders with wgpu's runtime checks and without", cases::trusted),
    ("tbe", "TBE's shape", cases::tbe),
    (
        FULL,
        "NVIDIA's shape whole: 268 million rows, 37.5 GB in 18 shards, mapped and in device memory. Only if it is named",
        full::nvidia,
    ),
];

/// The part that runs only if it is named.
const FULL: &str = "nvidia-full";

/// The part that draws triangles.
const DRAWS: &str = "readers";

fn part_names() -> PossibleValuesParser {
    PARTS.map(|(name, help, _)| PossibleValue::new(name).help(help)).into()
}

/// A figure of one workload divided by that of another: a line of `data/ratios.csv`.
#[derive(serde::Deserialize)]
struct Ratio {
    what: String,
    unit: Unit,
    /// The shape of the record.
    shape: String,
    /// The quantity, its workload, and the condition on its setting.
    figure: String,
    of: String,
    setting: String,
    /// The quantity of the divisor under the same setting, and its workload.
    against: String,
    of_other: String,
}

/// Records the ratios whose figures were both measured.
fn compare(run: &mut Run) -> anyhow::Result<()> {
    for ratio in csv::Reader::from_reader(&include_bytes!("../../data/ratios.csv")[..]).deserialize() {
        let Ratio { what, unit, shape, figure, of, setting, against, of_other } = ratio?;
        let places = Select { what: "", shape: &shape, setting: "placement; !kernel" };
        let Some(place) = run.select(places).next().map(|record| record.setting.clone()) else { continue };
        let both = run.value(&figure, &of, &setting).zip(run.value(&against, &of_other, &setting));
        run.at(shape, &place).push(&what, both.map(|(figure, other)| figure / other), unit);
    }
    Ok(())
}

pub(super) fn run(options: &Options, args: &Args) -> Result<(), Failure> {
    args.common.make_folder(options)?;
    let predicted = args.predict.as_deref().map(|machine| predict(options, args, machine)).transpose()?;
    if options.backend == Backend::Cpu {
        if let Some(predicted) = &predicted {
            return alone(options, args, predicted);
        }
        return Err(Failure::Usage(
            "bench suite: wanted a GPU backend, found --backend cpu; the suite measures kernels".into(),
        ));
    }
    output::check_files(options.json.as_deref(), None, &[], &args.beside)?;
    let beside = Beside::read(&args.beside)?;
    let opened = match options.backend {
        Backend::Gpu => adapter::open_best(adapter::Wanted::Any),
        _ => adapter::open_best(adapter::Wanted::Hardware),
    };
    let context = match (opened, &predicted) {
        (Ok(context), _) => context,
        (Err(Error::Unsupported { .. }), Some(predicted)) if options.backend == Backend::Auto => {
            return alone(options, args, predicted);
        }
        (Err(error), _) if options.backend == Backend::Gpu => return Err(error.into()),
        (Err(error), _) => return Err(anyhow::anyhow!("{error}; --backend gpu takes a software driver too").into()),
    };
    let complaints = Complaints::of(&context);
    let hardware = context.caps().is_hardware();
    let size = args.size.unwrap_or(if hardware { Size::Full } else { Size::Small });
    let deadline = Deadline::new(Duration::from_secs(args.seconds.unwrap_or(size.of(90, 240))));
    let lab = Lab::new(&context, size.rounds());
    let mut run = args.common.start(options, "bench suite", size.name());
    run.on(Machine::of(&context));
    let seed = options.group_seed();
    let mut bench = Bench { lab: Some(&lab), machine: None, size, seed, deadline, copy: None, bus: None, beside, run };
    copy::all(&mut bench)?;
    let mut parts = PARTS;
    // Once a software driver has drawn anything, its stamps no longer wait for dispatches.
    parts.sort_by_key(|(name, ..)| !hardware && *name == DRAWS);
    for (name, _, measure) in parts {
        if !args.asks_for(name) {
            continue;
        }
        if let Some(reason) = deadline.over() {
            bench.run.leave_out(name, reason);
            continue;
        }
        let start = deadline.seconds();
        // After a part that fails, the others are still measured.
        if let Err(error) = measure(&mut bench) {
            bench.run.leave_out(name, format!("{error:#}"));
        }
        if let Some(error) = complaints.first() {
            bench.run.leave_out(name, format!("its figures are not to be trusted: {error}"));
        }
        output::note(&format!("suite: {name} took {:.1} s", deadline.seconds() - start));
    }
    let mut run = bench.run;
    compare(&mut run)?;
    run.judge(hardware && size.is_full(), deadline.seconds());
    if let Some(predicted) = &predicted {
        run.set_beside(predicted);
    }
    let charts = charts(&run, &args.common.out)?;
    let tables = TABLES.map(|table| table.draw(&run));
    let goals = args.common.out.join("goals.md");
    output::write_file(&goals, run.goal_table().as_bytes())?;
    if let Some(predicted) = &predicted {
        write(args, predicted, None)?;
    }
    args.common.finish(options, &run, "suite", (&tables, tables.len()), &charts)?;
    output::print(&format!("wrote {}", goals.display()))?;
    // Speed is left to the reader; wrong results are an error.
    if !run.wrong.is_empty() {
        return Err(anyhow::anyhow!("bench suite: {}", run.wrong.join("; ")).into());
    }
    Ok(())
}

/// Runs the parts on the model of a machine, at the sizes of the goals. Parts that need a device are left out.
fn predict(options: &Options, args: &Args, name: &str) -> anyhow::Result<Run> {
    let machine = Model::named(name).ok_or_else(|| anyhow::anyhow!("data/machines.csv lacks numbers of {name}"))?;
    let mut run = args.common.start(options, "bench suite", Size::Full.name());
    run.predicts(name);
    let deadline = Deadline::new(Duration::from_secs(3600));
    let (copy, bus) = (Some(machine.number("copy")), Some(machine.number("link")));
    let (seed, size, beside) = (options.group_seed(), Size::Full, Beside::default());
    let mut bench = Bench { lab: None, machine: Some(machine), size, seed, deadline, copy, bus, beside, run };
    for (name, _, measure) in PARTS.into_iter().filter(|(name, ..)| args.predicts(name) && !UNPREDICTED.contains(name))
    {
        let start = deadline.seconds();
        if let Err(error) = measure(&mut bench) {
            bench.run.leave_out(name, format!("{error:#}"));
        }
        output::note(&format!("suite: {name} predicted in {:.1} s", deadline.seconds() - start));
    }
    let mut run = bench.run;
    compare(&mut run)?;
    run.judge(true, deadline.seconds());
    Ok(run)
}

/// Parts without a goal that take long to draw.
const UNPREDICTED: [&str; 2] = ["tbe", "small"];

/// Prints a prediction and writes its files.
fn write(args: &Args, predicted: &Run, json: Option<&Path>) -> anyhow::Result<()> {
    let tables = PREDICTED.map(|table| table.draw(predicted));
    let text = predicted.markdown(&tables);
    output::print(&text)?;
    let stem = args.common.out.join("predicted");
    output::write_file(&stem.with_extension("md"), text.as_bytes())?;
    let [json, csv] = predicted.write(&stem, json)?;
    output::print(&format!("wrote {}.md, {} and {}", stem.display(), csv.display(), json.display()))
}

/// A prediction without a measurement beside it.
fn alone(options: &Options, args: &Args, predicted: &Run) -> Result<(), Failure> {
    Ok(write(args, predicted, options.json.as_deref())?)
}

/// Shapes whose stages are printed. The files have all.
const STAGES: &str =
    "hits-uniform|hits-zipf|nvidia-row-wise|mapped-int8|uncached-fp32|sort of 16777216 pairs by 32 bits";

const PREDICTED: [Table; 2] = [
    Table::new("Whole phases, predicted.", "", &["shape"])
        .only("hit rate|distinct|missing|forward|backward|step|dispatches", "placement; !kernel; !stage"),
    Table::new(
        "Stages, predicted. The limit is what takes most of the time.",
        STAGES,
        &["shape", "phase", "stage", "limit"],
    )
    .only("", "stage"),
];

const TABLES: [Table; 14] = [
    Table::new("The device's own copies.", "copy", &["path", "how"]),
    Table::new("Whole phases. Logical is TBE's measure; table bytes cross the bus where mapped.", "", &["shape"])
        .only(PHASES, "placement; !kernel; !batches"),
    Table::new(
        "Kernels that take 2 % of their phase or more, and the bytes that each must move.",
        "",
        &["shape", "phase", "kernel"],
    )
    .only("", "kernel; !minor"),
    Table::new("Steps one after the other, by the host's clock.", "", &["shape"])
        .only("pace|hits|counted in|counted out|copied|host part", ""),
    Table::new("Tables that a kernel filled: made (and cleared) and filled, by the host's clock.", "", &["shape"])
        .only("shards|record bytes|made|filled|fill rate", ""),
    Table::new("Shares and comparisons.", "", &["shape", "what"]).only(COMPARED, "placement; !batch").across("unit"),
    Table::new(
        "Hot rows pinned, in the shape of SCARS's Tables I to IV; batches as they come, hot, normal, and with the same hit rate.",
        "pinned",
        &["batches", "placement", "cache MB", "batch"],
    ),
    Table::new("An epoch of those steps (SCARS, Tables V and VI).", "epoch", &["batch"]),
    Table::new(
        "Sort of pairs of 32-bit keys and values, and a stable sort on the host's cores.",
        "sort",
        &["pairs", "key bits"],
    ),
    Table::new(
        "A row a pixel, read by the caller's own shaders; raw reads are made for nothing but these bytes.",
        "readers",
        &["precision", "stage"],
    ),
    Table::new("The reader of the cache, by hit rate in percent.", "readers by hit rate", &["precision", "stage"])
        .across("hits"),
    Table::new("Rows that a frame wants, and the host's part where it misses.", "feedback", &["placement"]),
    Table::new("Steps of a hash grid.", "grid", &["tables"]),
    Table::new("Time against work: whole steps over distinct rows, all resident.", "scaling", &["distinct"]),
];

const PHASES: &str = "hit rate|distinct|missing|forward|backward|forward logical|backward logical|forward table bytes|\
    backward table bytes|step, host clock|dispatches";

const COMPARED: &str = "forward of copy|backward of copy|forward of bound|forward of bus|exchange of bus|against uncached FP32|against pages|\
    bytes against FP32|time against FP32|counted against copied|against mapped|share of host part hidden|gather against one window|\
    backward against even|step against SGD|step against trusted|step against 2 shards";

/// Draws time against work, if it was measured.
fn charts(run: &Run, out: &Path) -> anyhow::Result<Vec<[PathBuf; 2]>> {
    let mut work = Chart::new("Distinct rows in a step, or pairs sorted", "Time");
    work.title = format!("Time against work: {}", run.title());
    (work.log_x, work.log_y) = (true, true);
    const LINES: [&str; 4] = ["forward", "backward", "sort, 32 bits", "step"];
    let timed = Select { what: &LINES.join("|"), shape: "scaling|sort", setting: "" };
    let style = |record: &Record| Style {
        colour: LINES[..3].iter().position(|what| record.what == *what).unwrap_or(6),
        dashed: false,
        markers: true,
    };
    let at = |record: &Record| record.setting.number("distinct").or(record.setting.number("pairs"));
    work.lines(run.select(timed), "what", at, style);
    let mut written = Vec::new();
    if !work.series.is_empty() {
        written.push(work.write(&out.join("suite-work"))?);
    }
    Ok(written)
}
