//! Zhang 2018, Table 1: the cost of a backward of a low-precision table beside FP32. A quarter of the rows, chosen at random, each with its
//! own gradient; element-wise AdaGrad with its state in the table's type; no cache. Forward has unpacked the rows.
//!
//! `cargo bench --bench low_precision` takes the paper's 16 M x 64 and 4 M updates if memory allows, else a half, a quarter ... of both,
//! and prints the size. A software adapter gets a few thousand rows. `--backend gpu` also reads the time of the update kernel alone (optimise,
//! round, pack) from the device. Each setting takes turns with FP32, and only neighbouring measurements are compared, because a machine that is
//! slow for a while is slow for both. Speeds are medians, relative speeds the medians of the ratios.
#![allow(clippy::print_stdout, reason = "a benchmark prints its results")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap ends the benchmark")]

#[path = "support/run.rs"]
mod run;

use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use hotrow::{
    Context, CpuGroup, Group, GroupConfig, Init, Layout, Optimizer, Precision, RandomBits, Rounding, adapter,
    prelude::*,
};
use hotrow_cli::lab::{Inputs, Lab, Rounds};
use hotrow_cli::report::run::{Machine, Run};
use hotrow_cli::report::units::{Times, median};
use hotrow_cli::report::{Setting as Place, Unit, table};
use rand::{RngExt as _, SeedableRng as _, seq::SliceRandom as _};
use run::{Common, memory};

/// The number of rows in the paper. Its updates are a quarter of that.
const ROWS: u32 = 16_000_000;
/// The number of rows that a software adapter updates in a minute or so.
const SOFTWARE_ROWS: u32 = 8_000;

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

/// A line of the table: name, precision, rounding and random bits.
type Setting = (&'static str, Precision, Rounding, RandomBits);

const FP32: Setting = ("FP32", Precision::Fp32, Rounding::Nearest, RandomBits::TwentyFour);
const SETTINGS: [Setting; 10] = [
    ("FP16 nearest", Precision::Fp16, Rounding::Nearest, RandomBits::TwentyFour),
    ("FP16 stochastic, 8 bits", Precision::Fp16, Rounding::Stochastic, RandomBits::Eight),
    ("FP16 stochastic, 16 bits", Precision::Fp16, Rounding::Stochastic, RandomBits::Sixteen),
    ("FP16 stochastic, 24 bits", Precision::Fp16, Rounding::Stochastic, RandomBits::TwentyFour),
    ("INT8 nearest", Precision::Int8, Rounding::Nearest, RandomBits::TwentyFour),
    ("INT8 stochastic, 24 bits", Precision::Int8, Rounding::Stochastic, RandomBits::TwentyFour),
    ("INT4 nearest", Precision::Int4, Rounding::Nearest, RandomBits::TwentyFour),
    ("INT4 stochastic, 24 bits", Precision::Int4, Rounding::Stochastic, RandomBits::TwentyFour),
    ("INT2 nearest", Precision::Int2, Rounding::Nearest, RandomBits::TwentyFour),
    ("INT2 stochastic, 24 bits", Precision::Int2, Rounding::Stochastic, RandomBits::TwentyFour),
];

fn config((_, precision, rounding, bits): Setting, rows: u32, dim: u32) -> GroupConfig {
    GroupConfig::new(&[rows], dim)
        .with_precision(precision)
        .with_rounding(rounding)
        .with_random_bits(bits)
        .with_optimizer(Optimizer::adagrad(0.01))
        .with_init(Init::Uniform { low: -0.05, high: 0.05 })
}

/// A table of one setting that is updated repeatedly.
enum Bench {
    Host(Box<CpuGroup>),
    Device(Box<(Lab, Group, Inputs)>),
}

/// The rows of a step, and a gradient for each.
struct Batch {
    indices: Vec<u32>,
    offsets: Vec<u32>,
    grads: Vec<f32>,
}

impl Batch {
    /// A quarter of the rows, distinct ones in random order, and gradients of both signs, with squares that are normal in FP16. Subnormal
    /// squares take the CPU some 10 ns a row longer.
    fn new(rows: u32, dim: u32) -> Self {
        let updates = (rows / 4).max(1);
        let mut source = rand_pcg::Pcg64::seed_from_u64(1);
        let mut indices = Vec::with_capacity(updates as usize);
        for row in 0..rows {
            if source.random_range(0..rows - row) < updates - indices.len() as u32 {
                indices.push(row);
            }
        }
        indices.shuffle(&mut source);
        let grads = (0..updates as usize * dim as usize).map(|e| ((e % 17) as f32 - 8.0) * 0.05).collect();
        Self { indices, offsets: (0..=updates).collect(), grads }
    }
}

impl Bench {
    fn new(context: Option<&Context>, config: GroupConfig, batch: &Batch) -> Self {
        let Some(context) = context else { return Self::Host(Box::new(CpuGroup::new(config).unwrap())) };
        let lab = Lab::new(context, Rounds { whole: 1, detailed: 0, slice: Duration::ZERO });
        let mut inputs = Inputs::new(&lab, &[(batch.indices.clone(), batch.offsets.clone())], config.dim, 0.0);
        inputs.grads = lab.storage(bytemuck::cast_slice(&batch.grads));
        let group = Group::new(&lab.timed, config).unwrap();
        Self::Device(Box::new((lab, group, inputs)))
    }

    /// Runs a step. Returns the seconds of its backward, and of the update kernel in it if the device reports them.
    fn backward(&mut self, batch: &Batch) -> [Option<f64>; 2] {
        match self {
            Self::Host(group) => {
                group.forward(&batch.indices, &batch.offsets, None).unwrap();
                let start = Instant::now();
                group.backward(&batch.grads).unwrap();
                [Some(start.elapsed().as_secs_f64()), None]
            }
            Self::Device(device) => {
                let (lab, group, inputs) = &mut **device;
                let mut encoder = lab.encoder();
                lab.timeline.listen(false);
                group.record_forward(&mut encoder, &inputs.batch(0), inputs.outputs.slice(..)).unwrap();
                lab.submit(encoder).unwrap();
                lab.timeline.listen(true);
                let record = |_, encoder: &mut _| Ok(group.record_backward(encoder, inputs.grads.slice(..))?);
                let round = lab.round(&["backward"], record).unwrap();
                [Some(round.phases[0]), round.stage("update")]
            }
        }
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
    let dim = options.dim;
    let rows = options.rows.unwrap_or_else(|| choose_rows(dim, context.as_ref()));
    let batch = Batch::new(rows, dim);
    let mut run = options.common.start("low_precision");
    run.on(context.as_ref().map_or_else(Machine::cpu, Machine::of));
    let updates = batch.indices.len();
    let shape = format!(
        "{updates} random rows of {rows} x {dim}, element-wise AdaGrad; the paper has {ROWS} rows and updates a quarter, too"
    );
    run.describe("low_precision", shape);
    let mut fp32 = Bench::new(context.as_ref(), config(FP32, rows, dim), &batch);
    let mut all = Vec::new();
    for setting in SETTINGS {
        let mut bench = Bench::new(context.as_ref(), config(setting, rows, dim), &batch);
        let mut round = || [fp32.backward(&batch), bench.backward(&batch)];
        round(); // to warm up
        let rounds: Vec<_> = (0..options.rounds).map(|_| round()).collect();
        record(&mut run, setting, (rows, dim, updates), &rounds);
        all.extend(rounds.into_iter().map(|[fp32, _]| [fp32; 2]));
    }
    record(&mut run, FP32, (rows, dim, updates), &all);
    let title = "Against FP32: rows a second beside FP32's right before.";
    options.common.finish(&run, &[(title.to_owned(), table(&run.records, &["table and state", "pass"], "what"))]);
}

/// Records the bytes of a record, the times of the whole backward and of the update kernel, and rows a second relative to the neighbouring FP32
/// measurement. `rounds` are pairs of FP32 and of the setting.
fn record(run: &mut Run, setting: Setting, (rows, dim, updates): (u32, u32, usize), rounds: &[[[Option<f64>; 2]; 2]]) {
    for (k, pass) in ["backward", "update kernel"].into_iter().enumerate() {
        let pairs: Vec<(f64, f64)> = rounds.iter().filter_map(|[fp32, own]| fp32[k].zip(own[k])).collect();
        if pairs.is_empty() {
            continue;
        }
        let seconds = Times::of(pairs.iter().map(|pair| pair.1).collect());
        let layout = Layout::new(&config(setting, rows, dim), u64::MAX).unwrap();
        let mut at = run.at("low_precision", &Place::default().with("table and state", setting.0).with("pass", pass));
        at.push("record", layout.stride() as f64, Unit::Bytes);
        at.timed("time", seconds);
        at.push("rows a second", updates as f64 / seconds.median, Unit::PerSecond);
        at.push("against FP32", median(pairs.iter().map(|(fp32, own)| fp32 / own).collect()), Unit::Times);
    }
}

/// The rows of Zhang 2018, halved until two tables, and the scratch, the gradients and the sort of a step have room.
fn choose_rows(dim: u32, context: Option<&Context>) -> u32 {
    // A device does not report its free memory.
    let room = match context {
        Some(context) if context.caps().is_hardware() => None,
        Some(_) => return SOFTWARE_ROWS,
        None => memory("/proc/meminfo", "MemAvailable"),
    };
    let needed = |rows: u32| {
        let table = Layout::new(&config(FP32, rows, dim), u64::MAX).unwrap().table_bytes();
        3 * table + u64::from(rows / 4) * u64::from(dim) * 4 * 10 + (1 << 30)
    };
    let mut rows = ROWS;
    while room.is_some_and(|room| needed(rows) > room) && rows > 1000 {
        rows /= 2;
    }
    rows
}
