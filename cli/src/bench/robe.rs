//! `hotrow bench robe`: shared tables in the shape of ROBE's Figure 3 and its appendix, and their forward beside cached tables.

mod beside;
mod cells;
mod compare;
mod cpu;
mod gpu;
mod plan;
mod shape;

use bytesize::ByteSize;
use hotrow::{AddBody, Optimizer, OptimizerKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::common::{Common, Table, memory_left};
use super::suite::Size;
use crate::failure::Failure;
use crate::lab::{Complaints, Deadline, Lab};
use crate::names::one_of;
use crate::options::{Options, whole};
use crate::plot::{Chart, Heat, Panel, Style};
use crate::report::run::{Machine, Run};
use crate::report::{Record, Select, Setting, Unit, Value, table};
use plan::{Plan, Runner, WAYS};
use shape::{CHUNK, CHUNKS, COMPRESSION, COMPRESSIONS, MIDDLE, Shape};

/// Measure shared tables (ROBE) as in its Figure 3 and appendix, and their forward beside cached tables
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    common: Common,
    /// Sizes [default: full, small on a software driver]
    #[arg(long, value_enum)]
    size: Option<Size>,
    /// Floats in a row [default: 128]
    #[arg(long, value_name = "D", value_parser = whole(1u32..=65536))]
    dim: Option<u32>,
    /// Rows looked up in a batch [default: 10240, small 1024]
    #[arg(long, value_name = "N", value_parser = whole(1u32..=1 << 24))]
    batch: Option<u32>,
    /// Update rule: sgd or adagrad
    #[arg(long, default_value_t = OptimizerKind::Sgd, value_parser = one_of(OptimizerKind::ALL))]
    optimizer: OptimizerKind,
    /// Most memory of a table with its sums or gradient; larger ones are left out [default: on the CPU 8 GiB or three quarters of the free memory]
    #[arg(long, value_name = "SIZE")]
    memory: Option<ByteSize>,
    /// Seconds after which no further cell or gradient begins [default: 300, on the CPU 900, small 180]
    #[arg(long, value_name = "S", value_parser = whole(1u64..=3600))]
    seconds: Option<u64>,
}

pub(super) fn run(options: &Options, args: &Args) -> Result<(), Failure> {
    let optimizer = Optimizer::sgd(1e-3).with_kind(args.optimizer);
    if matches!(optimizer.kind, OptimizerKind::RowWiseAdaGrad | OptimizerKind::RowWiseAdam) {
        let wanted = format!(
            "--optimizer: wanted sgd, momentum, adagrad or adam with bench robe, found {}; a shared weight belongs to no row",
            optimizer.kind
        );
        return Err(Failure::Usage(wanted));
    }
    args.common.make_folder(options)?;
    let context = options.backend.open("running")?;
    let hardware = context.as_ref().is_some_and(|context| context.caps().is_hardware());
    let size = args.size.unwrap_or(if hardware || context.is_none() { Size::Full } else { Size::Small });
    let seconds = match (context.is_some(), size.is_full()) {
        (true, true) => 300,
        (false, true) => 900,
        (_, false) => 180,
    };
    let deadline = Deadline::new(Duration::from_secs(args.seconds.unwrap_or(seconds)));
    let asked = args.memory.map(|ByteSize(bytes)| bytes);
    let plan = Plan {
        size,
        shape: Shape::new(size, args.dim, args.batch),
        memory: if context.is_some() { asked } else { asked.or_else(|| Some(free())) },
        optimizer,
        seed: options.group_seed(),
        over: &|| deadline.over(),
        backend: if context.is_some() { "gpu" } else { "cpu" },
    };
    let mut run = args.common.start(options, "bench robe", size.name());
    match &context {
        Some(context) => {
            let (complaints, lab) = (Complaints::of(context), Lab::new(context, size.rounds()));
            run.on(Machine::of(context));
            let adds = match context.caps().choose_add() {
                AddBody::Native => "the device's own additions",
                AddBody::Exchange => "exchanges tried again: no float atomics here",
            };
            run.describe("atomic update", adds);
            run.describe("gradient", "into buffers made once");
            measure(&plan, &mut run, &mut gpu::GpuRunner::new(&lab))?;
            if let Some(error) = complaints.first() {
                run.leave_out("trust in these figures", error);
            }
        }
        None => {
            run.on(Machine::cpu());
            run.describe("atomic update", "sums of one thread, index by index");
            run.describe("gradient", "allocated by each call, which is part of its time, and not freed in it");
            measure(&plan, &mut run, &mut cpu::CpuRunner::new(size.rounds()))?;
        }
    }
    run.judge(hardware && plan.shape.published, deadline.seconds());
    let stem = format!("robe-{}", plan.backend);
    let charts = charts(&plan, &run, &args.common.out.join(&stem))?;
    let tables = tables(&plan, &run);
    Ok(args.common.finish(options, &run, &stem, (&tables, tables.len()), &charts)?)
}

/// Measures the forward beside cached tables and all cells, and records their comparisons.
fn measure(plan: &Plan<'_>, run: &mut Run, runner: &mut dyn Runner) -> anyhow::Result<()> {
    let (Shape { dim, batch, .. }, optimizer) = (&plan.shape, plan.optimizer.kind);
    run.describe("array", format!("one table x {dim}, {batch} rows a batch, no pooling, {optimizer:?}; update: sums and optimiser in one, gradient: the sums alone, into memory"));
    // The short part comes first; the cells take the remaining time.
    beside::run(plan, run, runner)?;
    cells::run(plan, &plan.shape.settings(), run, runner)?;
    compare::record(run);
    Ok(())
}

/// 8 GiB, or three quarters of the free memory if that is less.
fn free() -> u64 {
    const MOST: u64 = 8 << 30;
    memory_left().map_or(MOST, |bytes| (bytes / 4 * 3).min(MOST))
}

/// The setting of a panel's rows, of its columns, and the fixed setting.
#[derive(Clone, Copy)]
struct Axes {
    down: &'static str,
    across: &'static str,
    held: (&'static str, f64),
}

impl Axes {
    /// The axes of ROBE's tables 3 to 6, 7 to 10 and 11 to 14.
    fn all(shape: &Shape) -> [Self; 3] {
        let axes = |down, across, held| Self { down, across, held };
        [
            axes("rows", "compression", ("chunk", f64::from(CHUNK))),
            axes("rows", "chunk", ("compression", COMPRESSION)),
            axes("chunk", "compression", ("rows", f64::from(shape.rows[MIDDLE]))),
        ]
    }

    /// Selects the cells' records of the quantities `what`.
    fn select<'r>(self, run: &'r Run, what: &'r str) -> Vec<&'r Record> {
        let found = run.select(Select { what, shape: "array", setting: "" });
        found.filter(|record| self.has(record)).collect()
    }

    fn has(self, record: &Record) -> bool {
        let compression = record.setting.number("compression");
        record.setting.number(self.held.0) == Some(self.held.1)
            && compression.is_some_and(|compression| COMPRESSIONS.contains(&compression))
    }

    fn title(self) -> String {
        format!("{} down, {} across, {} {}", self.down, self.across, self.held.0, Value::Number(self.held.1))
    }
}

/// ROBE's forward and gradients, in the order of its tables.
const PASSES: [&str; 4] = ["forward", "forward before sparse update", "dense gradient", "sparse gradient"];

/// A figure of tables 3 to 14 of ROBE's appendix, in milliseconds. The full table of table 2 takes 0.12 ms forward and 0.35 ms backward.
#[derive(serde::Deserialize)]
struct Published {
    table: u32,
    figure: String,
    what: String,
    rows: u32,
    compression: u32,
    chunk: u32,
    milliseconds: f64,
}

fn published() -> Vec<Published> {
    let data = include_str!("../../data/robe-published.csv");
    csv::Reader::from_reader(data.as_bytes()).deserialize().flatten().collect()
}

impl Published {
    fn record(&self) -> Record {
        let setting = Setting::default().with("rows", self.rows).with("compression", self.compression);
        Record::new(&self.what, "ROBE", &setting.with("chunk", self.chunk), 1e-3 * self.milliseconds, Unit::Seconds)
    }
}

/// The printed tables: comparisons of cells, and the forward beside cached tables.
const TABLES: [Table; 5] = [
    Table::new("Loss of `Backward::Auto` over all cells, and of always one of them.", "auto", &["of", "chunks of"]),
    Table::new(
        "Crossover of dense and sparse, in |M| over the weights that a batch touches.",
        "crossover",
        &["of", "chunks of"],
    ),
    Table::new("Atomic update against the better of dense and sparse.", "atomic", &["chunks of"]),
    Table::new("One array, several numbers of rows: slowest against fastest.", "flat", &["weights"]).across("way"),
    Table::new("Forward of bags, sum, rows by Zipf 1.05.", "beside", &["bags of", "table"]),
];

fn tables(plan: &Plan<'_>, run: &Run) -> Vec<(String, Option<String>)> {
    let published = published();
    let theirs: Vec<(u32, Record)> = published.iter().map(|one| (one.table, one.record())).collect();
    let whose = if plan.shape.published { " / ROBE's, on a GPU it does not name" } else { "; not ROBE's sizes" };
    let axes = Axes::all(&plan.shape);
    let mut tables = Vec::new();
    for (axes, first) in axes.into_iter().zip([3, 7, 11]) {
        for (what, number) in PASSES.into_iter().zip(first..) {
            let beside = theirs.iter().filter(|(table, _)| *table == number && plan.shape.published);
            let figure = published.iter().find(|one| one.table == number && !one.figure.is_empty());
            let figure = figure.map_or_else(String::new, |one| format!(", Figure 3 ({})", one.figure));
            let title = format!("{what}, as ROBE's table {number}{figure}: {}{whose}", axes.title());
            let shown = axes.select(run, what).into_iter().chain(beside.map(|(_, record)| record));
            tables.push((title, table(shown, &[axes.down], axes.across)));
        }
    }
    for axes in axes {
        for (title, what) in [
            ("dense / sparse / atomic update", "dense update|sparse update|atomic update"),
            ("`Backward::Auto` against the faster one, update / gradient", "lost by auto update|lost by auto gradient"),
        ] {
            let shown = table(axes.select(run, what), &[axes.down], axes.across);
            tables.push((format!("{title}: {}", axes.title()), shown));
        }
    }
    tables.extend(TABLES.iter().map(|table| table.draw(run)));
    let smallest = format!("rows={}", Value::from(plan.shape.rows[0]));
    let stages = Select { what: "", shape: "stages", setting: &smallest };
    let shown = table(run.select(stages), &["compression", "chunk", "way", "stage"], "what");
    tables.push(("Stages that take 5 % of their phase, smallest table.".to_owned(), shown));
    tables
}

/// Draws ROBE's Figure 3 as heat maps with the updates below, and time against |M| with the crossovers.
fn charts(plan: &Plan<'_>, run: &Run, stem: &Path) -> anyhow::Result<Vec<[PathBuf; 2]>> {
    let [by_compression, by_chunk, _] = Axes::all(&plan.shape);
    if by_compression.select(run, "dense update").is_empty() {
        return Ok(Vec::new());
    }
    let rows: Vec<f64> = plan.shape.rows.iter().copied().map(f64::from).collect();
    let chunks = CHUNKS.map(f64::from);
    let panel = |(axes, letter, what): (Axes, &str, &str)| {
        let columns = if axes.across == "chunk" { &chunks[..] } else { &COMPRESSIONS };
        let label = format!("{}, {} {}", axes.across, axes.held.0, axes.held.1);
        Panel::of(format!("{letter}{what}"), label, axes.select(run, what), (axes.down, &rows), (axes.across, columns))
    };
    let panels = [
        (by_compression, "(a) ", "forward"),
        (by_compression, "(b) ", "dense gradient"),
        (by_compression, "(c) ", "sparse gradient"),
        (by_chunk, "(d) ", "forward"),
        (by_chunk, "(e) ", "dense gradient"),
        (by_chunk, "(f) ", "sparse gradient"),
        (by_compression, "", "dense update"),
        (by_compression, "", "sparse update"),
        (by_compression, "", "atomic update"),
    ];
    let title = format!("ROBE's Figure 3 and, below, updates; rows down, batch {}: {}", plan.shape.batch, run.title());
    let heat = Heat { title, label: "milliseconds".to_owned(), panels: panels.map(panel).into() };
    let mut crossover = Chart::new("|M|, weights of the shared array", "Time");
    crossover.title = format!("Updates and gradients, chunks of {CHUNK}: {}", run.title());
    (crossover.log_x, crossover.log_y) = (true, true);
    let how =
        |record: &Record| ["forward", "dense", "sparse", "atomic"].iter().position(|how| record.what.starts_with(how));
    let style = |record: &Record| Style {
        colour: how(record).unwrap_or(0),
        dashed: record.what.ends_with("gradient"),
        markers: true,
    };
    let ways = ["forward"].into_iter().chain(WAYS.map(|way| way.0));
    let shown = ways.flat_map(|what| by_compression.select(run, what));
    crossover.lines(shown, "what", |record| record.setting.number("weights"), style);
    let file = |what: &str| PathBuf::from(format!("{}-{what}", stem.display()));
    Ok(vec![heat.write(&file("heat"))?, crossover.write(&file("crossover"))?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_tables_are_whole() {
        let all = published();
        for (number, lines) in (3..).zip([[28; 4], [42; 4], [24; 4]].concat()) {
            let these: Vec<&Published> = all.iter().filter(|one| one.table == number).collect();
            // The figures of 256 M rows at 10x, dense, are blank in the paper.
            let blank = usize::from([3, 5].contains(&number));
            assert_eq!(these.len(), lines - blank, "table {number}");
            let shape = Shape::new(Size::Full, None, None);
            let axes = Axes::all(&shape)[(number as usize - 3) / 4];
            assert!(these.iter().all(|one| axes.has(&one.record())), "table {number}");
            assert!(these.iter().all(|one| one.what == PASSES[(number as usize - 3) % 4]), "table {number}");
        }
    }
}
