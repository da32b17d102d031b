//! `hotrow bench --robe`: parameter-shared tables in the shape of P4's Figure 3 and its appendix, and beside cached tables.

mod beside;
mod charts;
mod cpu;
mod gpu;
mod judge;
mod measure;
mod published;
mod report;
mod shape;

use bytesize::ByteSize;
use hotrow::{AddBody, Optimizer};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::options::Options;
use crate::output;
use crate::progress::Progress;
use crate::suite::lab::Lab;
use crate::suite::report::Machine;
use crate::suite::{self, Size};
use hotrow::Context;
use measure::{Limits, Runner};
use report::Report;
use shape::Shape;

/// Named apart from the group of bench's own options.
#[derive(Debug, clap::Args)]
#[group(id = "robe_options")]
pub(crate) struct Args {
    /// Measure parameter-shared tables instead: P4's Figure 3 and its appendix, and their forward beside cached tables'
    #[arg(long, group = "mode", conflicts_with_all = ["precision", "policy", "hit_rate", "placement", "rows", "only", "beside",
        "page_kib", "bus_gb_s", "fault_us"])]
    pub(crate) robe: bool,
    /// Most memory of a table, with the sums of an atomic update or a gradient; larger ones are left out [default: on the CPU 8 GiB or three quarters of what is free]
    #[arg(long, value_name = "SIZE", requires = "robe")]
    memory: Option<ByteSize>,
}

/// What bench's own options say.
pub(crate) struct Asked<'a> {
    pub(crate) suite: &'a suite::Args,
    pub(crate) out: &'a Path,
    pub(crate) seconds: Option<u64>,
    pub(crate) dim: Option<u32>,
    pub(crate) batch: Option<u32>,
    pub(crate) optimizer: Optimizer,
}

/// Seconds after which no further cell is begun, and of one that was no gradient and no atomic update.
fn budget(gpu: bool, size: Size) -> u64 {
    match (gpu, size.is_full()) {
        (true, true) => 300,
        (false, true) => 900,
        (_, false) => 180,
    }
}

/// Runs the benchmark.
pub(crate) fn run(options: &Options, args: &Args, asked: &Asked<'_>) -> Result<(), Failure> {
    if asked.optimizer.kind == hotrow::OptimizerKind::RowWiseAdaGrad {
        let wanted =
            "--optimizer: wanted sgd or adagrad with --robe, found row-wise-adagrad; a shared weight belongs to no row";
        return Err(Failure::Usage(wanted.into()));
    }
    // Before minutes of measuring: results that cannot be written are lost.
    std::fs::create_dir_all(asked.out)
        .map_err(|error| anyhow::anyhow!("{}: wanted a folder for the results: {error}", asked.out.display()))?;
    let context = options.backend.open("running")?;
    let report = match &context {
        Some(context) => on_gpu(options, args, asked, context)?,
        None => on_cpu(options, args, asked)?,
    };
    finish(options, asked, &report)
}

fn on_cpu(options: &Options, args: &Args, asked: &Asked<'_>) -> anyhow::Result<Report> {
    let size = asked.suite.size.unwrap_or(Size::Full);
    let shape = Shape::new(size, asked.dim, asked.batch);
    let mut report = Report::new(size.name(), "cpu", Machine::cpu(), shape);
    report.memory = Some(args.memory.map_or_else(free, |ByteSize(bytes)| bytes));
    report.adds = "sums of one thread, index by index";
    report.gradients = "here allocated by each call, which is part of its time, and not freed in it";
    let mut runner = cpu::CpuRunner::new(size);
    measure(options, asked, (size, false), &mut report, &mut runner, false, |table, warm, batches, offsets, _| {
        cpu::forward(size, table, warm, batches, offsets)
    })?;
    Ok(report)
}

fn on_gpu(options: &Options, args: &Args, asked: &Asked<'_>, context: &Context) -> anyhow::Result<Report> {
    let size = asked.suite.size.unwrap_or(if context.caps().is_hardware() { Size::Full } else { Size::Small });
    let shape = Shape::new(size, asked.dim, asked.batch);
    let heard = suite::listen(context);
    let lab = Lab::new(context, size, options.group_seed(), Duration::MAX);
    let mut report = Report::new(size.name(), "gpu", Machine::of(context, lab.timing()), shape);
    report.memory = args.memory.map(|ByteSize(bytes)| bytes);
    report.adds = match context.caps().choose_add() {
        AddBody::Native => "the device's own additions",
        AddBody::Exchange => "exchanges tried again: no float atomics here",
    };
    report.gradients = "here into buffers made once";
    let mut runner = gpu::GpuRunner::new(&lab);
    let judged = lab.judges() && report.shape.published;
    measure(options, asked, (size, true), &mut report, &mut runner, judged, |table, warm, batches, offsets, bag| {
        gpu::forward(&lab, table, warm, batches, offsets, bag)
    })?;
    if let Some(error) = suite::first(&heard) {
        report.left_out.push(format!("the figures are not to be trusted: {error}"));
    }
    Ok(report)
}

/// All cells, what they say, and the forward beside cached tables.
fn measure(
    options: &Options,
    asked: &Asked<'_>,
    (size, gpu): (Size, bool),
    report: &mut Report,
    runner: &mut dyn Runner,
    judged: bool,
    forward: impl FnMut(&beside::Table, &[Vec<u32>], &[Vec<u32>], &[u32], u32) -> anyhow::Result<beside::Forward>,
) -> anyhow::Result<()> {
    let (start, seconds) = (Instant::now(), asked.seconds.unwrap_or(budget(gpu, size)));
    let late = || {
        let elapsed = start.elapsed().as_secs_f64();
        (elapsed > seconds as f64).then(|| format!("out of time after {elapsed:.0} s of {seconds} (--seconds)"))
    };
    let seed = options.group_seed();
    // First, for it is short: the cells take what time is left.
    report.beside = beside::run(beside::sizes(size, gpu), report.shape.dim, seed, report.memory, &late, forward)?;
    let settings = report.shape.settings();
    let progress = Progress::new("shared arrays", settings.len() as u64);
    let limits = Limits { memory: report.memory, optimizer: asked.optimizer, seed, out_of_time: &late };
    let cells = measure::run(runner, &report.shape, &settings, &limits, &|| progress.advance(1))?;
    drop(progress);
    report.seed = options.seed;
    report.commit = suite::commit(asked.suite);
    report.optimizer = format!("{:?}", asked.optimizer.kind);
    report.crossovers = judge::crossovers(&cells);
    report.regrets = judge::regrets(&cells);
    report.atomic = judge::atomic(&cells);
    report.verdict = judge::verdict(&report.atomic);
    report.flat = judge::flat(&cells);
    report.goals = judge::goals(&cells, &report.crossovers, &report.flat, judged);
    for cell in &cells {
        let ways = cell.ways_refused.iter().map(|(way, reason)| (format!("{} of ", way.name()), reason));
        for (what, reason) in cell.refused.iter().map(|reason| (String::new(), reason)).chain(ways) {
            let one = &cell.setting;
            let (rows, times) = (shape::count(f64::from(one.rows)), judge::round(one.compression));
            report.left_out.push(format!("{what}{rows} rows at {times}x in chunks of {}: {reason}", one.chunk));
        }
    }
    report.cells = cells;
    for one in &report.beside {
        if let Some(reason) = &one.refused {
            report.left_out.push(format!("{} in bags of {}: {reason}", one.table, one.bag));
        }
    }
    report.seconds = start.elapsed().as_secs_f64();
    Ok(())
}

/// 8 GiB, or three quarters of what the system says is free.
fn free() -> u64 {
    const MOST: u64 = 8 << 30;
    let said = std::fs::read_to_string("/proc/meminfo").ok();
    let line = said.as_deref().and_then(|said| said.lines().find_map(|line| line.strip_prefix("MemAvailable:")));
    let kib = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.map_or(MOST, |kib| (kib * 1024 / 4 * 3).min(MOST))
}

fn finish(options: &Options, asked: &Asked<'_>, report: &Report) -> Result<(), Failure> {
    let mut text = report.tables();
    if let Some(stages) = report.stages() {
        text += &format!("\nStages that take 5 % of their phase, smallest table.\n\n{stages}\n");
    }
    output::print(&text)?;
    let mut written = charts::write(report, asked.out)?;
    let markdown = asked.out.join(format!("robe-{}.md", report.backend));
    output::write_file(&markdown, text.as_bytes())?;
    let json = options.json.clone().unwrap_or_else(|| asked.out.join(format!("robe-{}.json", report.backend)));
    output::write_json(&json, report)?;
    let csv = asked.out.join(format!("robe-{}.csv", report.backend));
    output::write_csv(&csv, &report.lines())?;
    written.extend([markdown, json, csv]);
    for path in &written {
        output::print(&format!("wrote {}", path.display()))?;
    }
    if report.cells.iter().all(|cell| cell.steps.is_empty()) {
        let why = report.left_out.first().cloned().unwrap_or_default();
        return Err(anyhow::anyhow!("--robe: wanted measurements, found none: {why}").into());
    }
    Ok(())
}
