//! P2's Table 1: what an update of a low-precision table costs beside FP32's. Random rows of a table, a quarter of it, each with a gradient of
//! its own, element-wise AdaGrad with its state in the table's type, no cache: the update kernel alone (unpack, optimise, round, pack) and
//! the whole backward (sorting the rows first).
//!
//! `cargo bench --bench low_precision` takes P2's 16 M x 64 and 4 M where memory allows, else a half, a quarter ... of both, and says so;
//! a software adapter gets a few thousand.
//! `--backend gpu` reads the kernel's time from the device. Each setting runs in turn with FP32, and what is compared is what runs next to
//! each other: a machine that is slow for a while is slow for both. Speeds are medians, relative ones the medians of the ratios.
#![allow(clippy::print_stdout, reason = "its results are for the reader")]
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on may stop")]

#[path = "support/run.rs"]
mod run;

#[path = "low_precision/chart.rs"]
mod chart;
#[path = "low_precision/device.rs"]
mod device;
#[path = "low_precision/host.rs"]
mod host;

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use hotrow::{GroupConfig, Init, Layout, Optimizer, Precision, RandomBits, Rounding, adapter};
use rand::{RngExt as _, SeedableRng as _, seq::SliceRandom as _};
use run::{Common, Machine, median};
use serde::Serialize;

/// P2's rows; its updates are a quarter.
const ROWS: u32 = 16_000_000;
/// What a software adapter gets through in a minute or so.
const SOFTWARE_ROWS: u32 = 8_000;
/// Updates by themselves in a round.
const UPDATES: usize = 3;

#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    common: Common,
    /// Whose kernels
    #[arg(long, value_enum, default_value_t = Backend::Cpu)]
    backend: Backend,
    /// Rows of the table [default: 16000000, fewer where memory or a software adapter asks]
    #[arg(long, value_parser = clap::value_parser!(u32).range(64..=1 << 30))]
    rows: Option<u32>,
    /// Floats in a row
    #[arg(long, default_value_t = 64)]
    dim: u32,
    /// Rounds of each setting
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Draw the results as STEM.svg and STEM.png
    #[arg(long, value_name = "STEM")]
    plot: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Backend {
    Cpu,
    Gpu,
}

/// A line of the table.
#[derive(Clone, Copy, Debug, Serialize)]
struct Setting {
    name: &'static str,
    #[serde(skip)]
    precision: Precision,
    #[serde(skip)]
    rounding: Rounding,
    #[serde(skip)]
    random_bits: RandomBits,
}

const FP32: Setting = Setting {
    name: "FP32",
    precision: Precision::Fp32,
    rounding: Rounding::Nearest,
    random_bits: RandomBits::TwentyFour,
};

fn settings() -> [Setting; 10] {
    let nearest = |name, precision| Setting { name, precision, ..FP32 };
    let random =
        |name, precision, random_bits| Setting { name, precision, rounding: Rounding::Stochastic, random_bits };
    let [eight, sixteen, twenty_four] = RandomBits::ALL;
    [
        nearest("FP16 nearest", Precision::Fp16),
        random("FP16 stochastic, 8 bits", Precision::Fp16, eight),
        random("FP16 stochastic, 16 bits", Precision::Fp16, sixteen),
        random("FP16 stochastic, 24 bits", Precision::Fp16, twenty_four),
        nearest("INT8 nearest", Precision::Int8),
        random("INT8 stochastic, 24 bits", Precision::Int8, twenty_four),
        nearest("INT4 nearest", Precision::Int4),
        random("INT4 stochastic, 24 bits", Precision::Int4, twenty_four),
        nearest("INT2 nearest", Precision::Int2),
        random("INT2 stochastic, 24 bits", Precision::Int2, twenty_four),
    ]
}

impl Setting {
    fn config(&self, size: Size) -> GroupConfig {
        GroupConfig::new(&[size.rows], size.dim)
            .with_precision(self.precision)
            .with_rounding(self.rounding)
            .with_random_bits(self.random_bits)
            .with_optimizer(Optimizer::adagrad(0.01))
            .with_init(Init::Uniform { low: -0.05, high: 0.05 })
    }

    fn layout(&self, size: Size) -> Layout {
        Layout::new(&self.config(size), u64::MAX).unwrap()
    }

    /// What an update must move of a row: its gradient, its record there and back, the lines of the lists that name it.
    fn bytes(&self, size: Size) -> u64 {
        4 * u64::from(size.dim) + 2 * self.layout(size).stride() + 16 + 8
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Size {
    rows: u32,
    updates: u32,
    dim: u32,
}

/// The rows of a step in the order they come, and in ascending order with the place of each among those.
struct Rows {
    indices: Vec<u32>,
    sorted: Vec<[u32; 2]>,
}

impl Rows {
    /// Distinct, each set of them as likely as any.
    fn new(size: Size, seed: u64) -> Self {
        let mut source = rand_pcg::Pcg64::seed_from_u64(seed);
        let mut indices = Vec::with_capacity(size.updates as usize);
        for row in 0..size.rows {
            if source.random_range(0..size.rows - row) < size.updates - indices.len() as u32 {
                indices.push(row);
            }
        }
        indices.shuffle(&mut source);
        let mut sorted: Vec<[u32; 2]> = indices.iter().zip(0..).map(|(&row, place)| [row, place]).collect();
        sorted.sort_unstable();
        Self { indices, sorted }
    }
}

/// Gradients of both signs, of a size at which their squares are normal in FP16: subnormal ones take the CPU some 10 ns a row longer.
fn gradients(n: usize) -> Vec<f32> {
    (0..n).map(|e| ((e % 17) as f32 - 8.0) * 0.05).collect()
}

/// Seconds of a whole backward, and of the update kernel in it, where the device tells.
#[derive(Clone, Copy, Debug)]
struct Backward {
    seconds: f64,
    update: Option<f64>,
}

/// Seconds of a setting and of FP32, each measured right behind the other.
#[derive(Clone, Debug, Default)]
struct Pairs {
    update: Vec<[f64; 2]>,
    backward: Vec<[f64; 2]>,
}

impl Pairs {
    /// One round of a setting beside FP32.
    fn round(&mut self, bench: &mut dyn Bench, fp32: &mut dyn Bench) {
        for _ in 0..UPDATES {
            self.update.extend(fp32.update().zip(bench.update()).map(|(fp32, own)| [own, fp32]));
        }
        let (fp32, own) = (fp32.backward(), bench.backward());
        self.update.extend(fp32.update.zip(own.update).map(|(fp32, own)| [own, fp32]));
        self.backward.push([own.seconds, fp32.seconds]);
    }

    /// FP32 beside itself.
    fn of_fp32(&self) -> Self {
        let alike = |pairs: &[[f64; 2]]| pairs.iter().map(|&[_, fp32]| [fp32; 2]).collect();
        Self { update: alike(&self.update), backward: alike(&self.backward) }
    }
}

#[derive(Debug, Serialize)]
struct Report {
    backend: Backend,
    machine: Option<Machine>,
    threads: usize,
    size: Size,
    /// P2's rows, if these are not as many.
    scaled_from: Option<u32>,
    rounds: u32,
    lines: Vec<Line>,
}

/// Medians of a setting's rounds, and of FP32's in turn with them.
#[derive(Clone, Debug, Serialize)]
struct Line {
    setting: Setting,
    record_bytes: u64,
    update_bytes: u64,
    update: Option<Figure>,
    backward: Figure,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Figure {
    seconds: f64,
    rows_per_second: f64,
    /// Of what an update must move.
    bytes_per_second: f64,
    /// Times as many rows a second as FP32 right beside it.
    relative_to_fp32: f64,
}

impl Figure {
    fn new(setting: &Setting, size: Size, pairs: &[[f64; 2]]) -> Self {
        let seconds = median(pairs.iter().map(|&[own, _]| own).collect());
        let rows_per_second = f64::from(size.updates) / seconds;
        Self {
            seconds,
            rows_per_second,
            bytes_per_second: rows_per_second * setting.bytes(size) as f64,
            relative_to_fp32: median(pairs.iter().map(|[own, fp32]| fp32 / own).collect()),
        }
    }
}

impl Line {
    fn new(setting: Setting, size: Size, pairs: &Pairs) -> Self {
        Self {
            setting,
            record_bytes: setting.layout(size).stride(),
            update_bytes: setting.bytes(size),
            update: (!pairs.update.is_empty()).then(|| Figure::new(&setting, size, &pairs.update)),
            backward: Figure::new(&setting, size, &pairs.backward),
        }
    }

    fn print(&self) {
        let figure = |figure: Option<Figure>| match figure {
            None => " - | - | - ".to_owned(),
            Some(figure) => format!(
                "{:.2} | {:.2} | {:.2} x",
                figure.rows_per_second * 1e-6,
                figure.bytes_per_second * 1e-9,
                figure.relative_to_fp32
            ),
        };
        let Self { setting, record_bytes, .. } = self;
        println!("| {} | {record_bytes} | {} | {} |", setting.name, figure(self.update), figure(Some(self.backward)));
    }
}

fn main() {
    let mut options = Options::parse();
    if !options.common.wants("low_precision") {
        return;
    }
    if options.common.test {
        (options.rows, options.rounds) = (Some(options.rows.unwrap_or(4096).min(4096)), 1);
    }
    let context = match options.backend {
        Backend::Cpu => None,
        Backend::Gpu => match adapter::open_best(adapter::Wanted::Any) {
            Ok(context) => Some(context),
            Err(reason) => return println!("low_precision left out: {reason}"),
        },
    };
    let size = size(&options, context.as_ref());
    let rows = Rows::new(size, 1);
    let mut report = Report {
        backend: options.backend,
        machine: context.as_ref().map(Machine::of),
        threads: rayon::current_num_threads(),
        size,
        scaled_from: (size.rows < ROWS).then_some(ROWS),
        rounds: options.rounds,
        lines: Vec::new(),
    };
    report.head();
    let bench = |setting: &Setting| -> Box<dyn Bench + '_> {
        match &context {
            None => Box::new(host::Host::new(setting, size, &rows)),
            Some(context) => Box::new(device::Device::new(context, setting, size, &rows)),
        }
    };
    let mut fp32 = bench(&FP32);
    let mut all_fp32 = Pairs::default();
    for setting in settings() {
        let mut bench = bench(&setting);
        Pairs::default().round(&mut *bench, &mut *fp32); // to warm up
        let mut pairs = Pairs::default();
        (0..options.rounds).for_each(|_| pairs.round(&mut *bench, &mut *fp32));
        report.lines.push(Line::new(setting, size, &pairs));
        let alike = pairs.of_fp32();
        all_fp32.update.extend(alike.update);
        all_fp32.backward.extend(alike.backward);
    }
    report.lines.insert(0, Line::new(FP32, size, &all_fp32));
    report.lines.iter().for_each(Line::print);
    options.common.write(&report);
    if let Some(stem) = &options.plot {
        chart::write(&report, stem);
    }
}

/// A table of one setting that is updated again and again.
trait Bench {
    /// Seconds of the update kernel by itself, where it can be run so.
    fn update(&mut self) -> Option<f64>;
    /// A step, its backward timed.
    fn backward(&mut self) -> Backward;
}

/// What was asked for, else P2's size, halved until two tables and what a step needs have room.
fn size(options: &Options, context: Option<&hotrow::Context>) -> Size {
    let of = |rows: u32| Size { rows, updates: (rows / 4).max(1), dim: options.dim };
    if let Some(rows) = options.rows {
        return of(rows);
    }
    // A device does not say how much it has free.
    let room = match context {
        Some(context) if context.caps().is_hardware() => None,
        Some(_) => return of(SOFTWARE_ROWS),
        None => available(),
    };
    let mut size = of(ROWS);
    while room.is_some_and(|room| needed(size) > room) && size.rows > 1000 {
        size = of(size.rows / 2);
    }
    size
}

/// Two tables, each with the scratch and the gradients of a step, and as much as that for the sort; the host's copy of a table for its
/// kernel alone.
fn needed(size: Size) -> u64 {
    let table = FP32.layout(size).table_bytes();
    let step = u64::from(size.updates) * u64::from(size.dim) * 4 * 3;
    3 * table + 2 * step + (1 << 30)
}

/// Bytes of memory that programs may still take, where the system tells.
fn available() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}

impl Report {
    /// What is measured, where.
    fn title(&self) -> String {
        let Size { rows, updates, dim } = self.size;
        let who = self.machine.as_ref().map_or(format!("CPU, {} threads", self.threads), ToString::to_string);
        format!("{updates} random rows of {rows} x {dim}, element-wise AdaGrad, on {who}")
    }

    fn head(&self) {
        println!("low_precision: {}", self.title());
        if let Some(rows) = self.scaled_from {
            println!("P2 has {rows} rows and updates a quarter, too");
        }
        println!(
            "GB/s: gradient and lists in, record in and out, over the time; relative: rows/s beside FP32's right behind it\n"
        );
        println!(
            "| table and state | record, B | update, Mrows/s | GB/s | relative | backward, Mrows/s | GB/s | relative |"
        );
        println!("|---|---:|---:|---:|---:|---:|---:|---:|");
    }
}
