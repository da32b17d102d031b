//! Zhang 2018, Table 1: the cost of an update of a low-precision table beside FP32. A quarter of the rows, chosen at random, each with its
//! own gradient; element-wise AdaGrad with its state in the table's type; no cache. Measures the update kernel alone (optimise, round,
//! pack) and the whole backward (which sorts the rows first). Forward has unpacked the rows.
//!
//! `cargo bench --bench low_precision` takes the paper's 16 M x 64 and 4 M updates if memory allows, else a half, a quarter ... of both,
//! and prints the size. A software adapter gets a few thousand rows. `--backend gpu` reads the kernel's time from the device. Each setting
//! takes turns with FP32, and only neighbouring measurements are compared, because a machine that is slow for a while is slow for both.
//! Speeds are medians, relative speeds the medians of the ratios.
#![allow(clippy::print_stdout, reason = "a benchmark prints its results")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap ends the benchmark")]

#[path = "support/run.rs"]
mod run;

#[path = "low_precision/device.rs"]
mod device;
#[path = "low_precision/host.rs"]
mod host;

use clap::{Parser, ValueEnum};
use hotrow::{GroupConfig, Init, Layout, Optimizer, Precision, RandomBits, Rounding, adapter};
use hotrow_cli::report::run::{Machine, Run};
use hotrow_cli::report::units::{Times, median};
use hotrow_cli::report::{Setting as Place, Unit, table};
use rand::{RngExt as _, SeedableRng as _, seq::SliceRandom as _};
use run::Common;

/// The number of rows in the paper. Its updates are a quarter of that.
const ROWS: u32 = 16_000_000;
/// The number of rows that a software adapter updates in a minute or so.
const SOFTWARE_ROWS: u32 = 8_000;
/// Number of runs of the update kernel alone in a round.
const UPDATES: usize = 3;

#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    common: Common,
    /// Backend whose kernels are measured
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
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Backend {
    Cpu,
    Gpu,
}

/// A line of the table.
#[derive(Clone, Copy, Debug)]
struct Setting {
    name: &'static str,
    precision: Precision,
    rounding: Rounding,
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

    /// The bytes that an update of a row must move: the gradient, the FP32 row in, the record out, and the entries of the lists that name
    /// the row.
    fn bytes(&self, size: Size) -> u64 {
        let layout = self.layout(size);
        4 * u64::from(size.dim) + 4 * u64::from(layout.row.row_words) + layout.stride() + 16 + 8
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Size {
    rows: u32,
    updates: u32,
    dim: u32,
}

/// The rows of a step in batch order, and in ascending order with the batch position of each.
struct Rows {
    indices: Vec<u32>,
    sorted: Vec<[u32; 2]>,
}

impl Rows {
    /// Distinct random rows. Every set of rows is equally likely.
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

/// Gradients of both signs, with squares that are normal in FP16. Subnormal squares take the CPU some 10 ns a row longer.
fn gradients(n: usize) -> Vec<f32> {
    (0..n).map(|e| ((e % 17) as f32 - 8.0) * 0.05).collect()
}

/// Seconds of a whole backward, and of its update kernel if the device reports it.
#[derive(Clone, Copy, Debug)]
struct Backward {
    seconds: f64,
    update: Option<f64>,
}

/// Seconds of a setting and of FP32, measured one after the other.
#[derive(Clone, Debug, Default)]
struct Pairs {
    update: Vec<[f64; 2]>,
    backward: Vec<[f64; 2]>,
}

impl Pairs {
    /// Runs one round of a setting and of FP32.
    fn round(&mut self, bench: &mut dyn Bench, fp32: &mut dyn Bench) {
        for _ in 0..UPDATES {
            self.update.extend(fp32.update().zip(bench.update()).map(|(fp32, own)| [own, fp32]));
        }
        let (fp32, own) = (fp32.backward(), bench.backward());
        self.update.extend(fp32.update.zip(own.update).map(|(fp32, own)| [own, fp32]));
        self.backward.push([own.seconds, fp32.seconds]);
    }

    /// The times of FP32 against themselves.
    fn of_fp32(&self) -> Self {
        let alike = |pairs: &[[f64; 2]]| pairs.iter().map(|&[_, fp32]| [fp32; 2]).collect();
        Self { update: alike(&self.update), backward: alike(&self.backward) }
    }
}

/// Records the bytes of a record, the times of the kernel and of the whole backward, and rows a second relative to the neighbouring FP32
/// measurement.
fn record(run: &mut Run, setting: &Setting, size: Size, pairs: &Pairs) {
    for (pass, pairs) in [("update kernel", &pairs.update), ("backward", &pairs.backward)] {
        let place = Place::default().with("table and state", setting.name).with("pass", pass);
        let seconds = Times::of(pairs.iter().map(|&[own, _]| own).collect());
        if seconds.rounds == 0 {
            continue;
        }
        let rows = f64::from(size.updates) / seconds.median;
        let relative = median(pairs.iter().map(|[own, fp32]| fp32 / own).collect());
        let mut at = run.at("low_precision", &place);
        at.push("record", setting.layout(size).stride() as f64, Unit::Bytes);
        at.timed("time", seconds);
        at.push("rows a second", rows, Unit::PerSecond);
        at.push("bytes a second", rows * setting.bytes(size) as f64, Unit::BytesPerSecond);
        at.push("against FP32", relative, Unit::Times);
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
    let mut run = options.common.start("low_precision");
    run.on(context.as_ref().map_or_else(Machine::cpu, Machine::of));
    let Size { rows: all, updates, dim } = size;
    let shape = format!(
        "{updates} random rows of {all} x {dim}, element-wise AdaGrad; the paper has {ROWS} rows and updates a quarter, too"
    );
    run.describe("low_precision", shape);
    let bench = |setting: &Setting| -> Box<dyn Bench + '_> {
        match &context {
            None => Box::new(host::Host::new(setting, size, &rows)),
            Some(context) => Box::new(device::Device::new(context, setting, size, &rows)),
        }
    };
    let mut fp32 = bench(&FP32);
    let mut measured = Vec::new();
    let mut all_fp32 = Pairs::default();
    for setting in settings() {
        let mut bench = bench(&setting);
        Pairs::default().round(&mut *bench, &mut *fp32); // to warm up
        let mut pairs = Pairs::default();
        (0..options.rounds).for_each(|_| pairs.round(&mut *bench, &mut *fp32));
        let alike = pairs.of_fp32();
        all_fp32.update.extend(alike.update);
        all_fp32.backward.extend(alike.backward);
        measured.push((setting, pairs));
    }
    measured.insert(0, (FP32, all_fp32));
    measured.iter().for_each(|(setting, pairs)| record(&mut run, setting, size, pairs));
    let title =
        "Bytes: gradient, FP32 row and lists in, record out; against FP32: rows a second beside FP32's right behind.";
    let shown = table(&run.records, &["table and state", "pass"], "what");
    options.common.finish(&run, &[(title.to_owned(), shown)]);
}

/// A table of one setting that is updated repeatedly.
trait Bench {
    /// Seconds of the update kernel alone, if it can run alone.
    fn update(&mut self) -> Option<f64>;
    /// Runs a step. Returns the times of its backward.
    fn backward(&mut self) -> Backward;
}

/// The requested size, or else that of Zhang 2018, halved until two tables and the buffers of a step have room.
fn size(options: &Options, context: Option<&hotrow::Context>) -> Size {
    let of = |rows: u32| Size { rows, updates: (rows / 4).max(1), dim: options.dim };
    if let Some(rows) = options.rows {
        return of(rows);
    }
    // A device does not report its free memory.
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

/// The bytes of two tables, each with the scratch and the gradients of a step, as much again for the sort, and the rows of the kernel
/// alone, and of the host's copy of a table for the kernel alone.
fn needed(size: Size) -> u64 {
    let table = FP32.layout(size).table_bytes();
    let step = u64::from(size.updates) * u64::from(size.dim) * 4 * 5;
    3 * table + 2 * step + (1 << 30)
}

/// Bytes of memory that programs may still take, if the system reports them.
fn available() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}
