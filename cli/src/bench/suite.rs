//! `hotrow bench suite`: every kernel and whole steps at named shapes, each against the device's own copy bandwidth and the goals.

mod bench;
mod bytes;
mod cases;
mod copy;
mod grid;
mod random;
mod readers;
pub(super) mod shapes;
mod sort;
mod staged;
pub(super) mod workload;

pub(super) use bench::Size;

use super::common::Common;
use bench::Bench;
use cases::Case;
use clap::builder::{PossibleValue, PossibleValuesParser};
use hotrow::{Group, adapter};
use hotrow_report::clock::{Clock, Complaints, Deadline, has_no_room};
use hotrow_report::failure::{Failure, ensure_usage};
use hotrow_report::options::{Backend, Options, whole};
use hotrow_report::output;
use hotrow_report::records::{Select, Unit};
use hotrow_report::run::{Machine, Run};
use std::path::PathBuf;
use std::time::Duration;

/// Measure every kernel and whole steps at named shapes, against the device's own copy bandwidth and the goals
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    common: Common,
    /// Sizes [default: full, small on a software driver]
    #[arg(long, value_enum)]
    size: Option<Size>,
    /// Parts [default: all but nvidia-full and scars]
    #[arg(long, value_delimiter = ',', value_parser = part_names())]
    only: Vec<String>,
    /// JSON of `benches/side_by_side.py` from the same machine, for goals that compare. May be given several times
    #[arg(long, value_name = "FILE")]
    beside: Vec<PathBuf>,
    /// Seconds after which no further case begins [default: 240, small 90]
    #[arg(long, value_name = "S", value_parser = whole(1u64..=3600))]
    seconds: Option<u64>,
}

/// What a part measures beyond its cases.
type Measure = fn(&mut Bench<'_>) -> anyhow::Result<()>;

/// The parts of the suite. Short parts and parts that decide a goal come first.
const PARTS: [(&str, &str, Option<Measure>); 15] = [
    ("random", "Random rows read and updated, 64 B to 4 KB in tables of all sizes, against a copy", Some(random::run)),
    ("hits", "All rows resident: gather, forward, backward", None),
    ("nvidia", "NVIDIA's shape", None),
    ("bus", "95 % hits, the rest over the bus", None),
    ("uncached", "No cache: FP32 and INT8 rows over the bus", None),
    (
        "staged",
        "95 % hits: staged with prefetch and without, against mapped; bytes counted and copied",
        Some(staged::run),
    ),
    ("readers", "A row a pixel read by the caller's own shader, against a raw read", Some(readers::readers)),
    ("grid", "Steps of a hash grid: 2^18 points, a sort against atomic additions", Some(grid::run)),
    ("sort", "The sort alone", Some(sort::run)),
    ("optimizers", "SGD, row-wise and element-wise AdaGrad", None),
    ("low-precision", "Backward of each precision without a cache, against FP32", None),
    ("pinned", "Hot rows pinned: caches of 128 and 1024 MB against none", None),
    ("small", "A thousand indices", None),
    ("nvidia-full", "NVIDIA's shape whole: 268 million rows, 37.5 GB in 18 pieces. Only if it is named", None),
    ("scars", "SCARS' Tables I to VI: sizes of the cache of pinned rows, and batches. Only if it is named", None),
];

/// The parts that run only if they are named.
const NAMED: [&str; 2] = ["nvidia-full", "scars"];

fn part_names() -> PossibleValuesParser {
    PARTS.map(|(name, help, _)| PossibleValue::new(name).help(help)).into()
}

/// A figure of one workload divided by that of another: a line of `data/ratios.csv`.
#[derive(serde::Deserialize)]
struct Ratio {
    what: String,
    unit: Unit,
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

/// Measures and records a case, with a cache that is smaller by a factor. A wrong share of hits is an error of the command.
fn one(bench: &mut Bench<'_>, case: &Case, by: u32) -> anyhow::Result<()> {
    let mut workload = case.workload(bench, by)?;
    let taken = if case.pieces > 0 {
        workload::measure_whole(bench, &mut workload, case.pieces)?
    } else {
        workload.run(bench.clock, &mut Group::new(&bench.clock.timed, workload.config.clone())?)?
    };
    if let Some(wanted) = case.hits.filter(|wanted| (taken.facts.hit_rate() - wanted).abs() > 0.003) {
        let found = taken.facts.hit_rate();
        bench.run.wrong.push(format!("{}: wanted {wanted} of the lookups to hit, found {found:.4}", case.name));
    }
    workload::record(bench, &workload, &taken);
    Ok(())
}

/// Measures a part: its cases, then what it has beyond them.
fn measure(bench: &mut Bench<'_>, part: &str, beyond: Option<Measure>) -> anyhow::Result<()> {
    // On a device that maps no memory, the twin in device memory would be the same case again.
    let mapped = bench.is_mapped();
    let cases = cases::of(part).into_iter().filter(|case| case.pieces == 0 || case.mapped || mapped);
    bench.each(cases.map(|case| (case.name.clone(), case)), |bench, case| match one(bench, &case, 1) {
        // If the device has too little memory, a cache of half the size takes the place, if rows are as many as slots; the records say so.
        Err(error) if case.rows == [0, 0] && has_no_room(&error) => one(bench, &case, 2),
        done => done,
    })?;
    beyond.map_or(Ok(()), |beyond| beyond(bench))
}

pub(super) fn run(options: &Options, args: &Args) -> Result<(), Failure> {
    ensure_usage!(
        options.backend != Backend::Cpu,
        "bench suite: wanted a GPU backend, found --backend cpu; the suite measures kernels: take --backend gpu, or `hotrow bench --backend cpu`"
    );
    output::check_files(options.json.as_deref(), None, &[], &args.beside)?;
    let beside = bench::beside(&args.beside)?;
    args.common.make_folder(options)?;
    let context = match options.backend {
        Backend::Gpu => adapter::open_best()?,
        _ => adapter::open_hardware()
            .map_err(|error| anyhow::anyhow!("{error}; --backend gpu takes a software driver too"))?,
    };
    let complaints = Complaints::of(&context);
    let hardware = context.caps().is_hardware();
    let size = args.size.unwrap_or(if hardware { Size::Full } else { Size::Small });
    let deadline = Deadline::new(Duration::from_secs(args.seconds.unwrap_or(size.of(90, 240))));
    let clock = Clock::new(&context, size.rounds());
    let mut run = args.common.start(options, "bench suite", size.of("small", "full"));
    run.on(Machine::of(&context));
    let seed = options.group_seed();
    let mut bench = Bench { clock: &clock, size, seed, deadline, copy: None, bus: None, beside, run };
    copy::all(&mut bench)?;
    let asked = |part: &str| {
        if args.only.is_empty() { !NAMED.contains(&part) } else { args.only.iter().any(|one| one == part) }
    };
    for (name, _, beyond) in PARTS.into_iter().filter(|(name, ..)| asked(name)) {
        if let Some(reason) = deadline.over() {
            bench.run.leave_out(name, reason);
            continue;
        }
        let start = deadline.seconds();
        if let Err(error) = measure(&mut bench, name, beyond) {
            bench.run.leave_out(name, format!("{error:#}"));
        }
        if let Some(error) = complaints.first() {
            bench.run.leave_out(name, format!("its figures are not to be trusted: {error}"));
        }
        output::note(&format!("suite: {name} took {:.1} s", deadline.seconds() - start));
    }
    let (mut run, copy) = (bench.run, bench.copy);
    compare(&mut run)?;
    run.judge(hardware && size == Size::Full, deadline.seconds());
    let drawn = random::chart(&run, copy).write_any(&args.common.out.join("suite-random"))?;
    let goals = args.common.out.join("goals.md");
    output::write_file(&goals, run.goal_table().as_bytes())?;
    args.common.finish(options, &run, "suite", usize::MAX, drawn.as_slice())?;
    output::print(&format!("wrote {}", goals.display()))?;
    // Speed is left to the reader; wrong results are an error.
    if !run.wrong.is_empty() {
        return Err(anyhow::anyhow!("bench suite: {}", run.wrong.join("; ")).into());
    }
    Ok(())
}
