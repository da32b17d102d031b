//! `hotrow bench robe`: forward and update of shared tables, over three numbers of rows, ROBE's compressions and two chunks.

use hotrow::robe::{Backward, Config};
use hotrow::{
    CpuSharedGroup, Error, Mode, Optimizer, OptimizerKind, Pooling, SharedGroup, internals::AddBody, prelude::*,
};
use rand::RngExt as _;
use std::time::Duration;

use super::common::Common;
use super::runners::on_cpu;
use super::suite::{Size, shapes::random};
use crate::plan::amount;
use crate::plan::robe::{CHUNK, COMPRESSIONS, setting};
use hotrow_report::clock::{self, Clock, Complaints, Deadline, Inputs, Rounds, gradients, has_no_room};
use hotrow_report::failure::{Failure, ensure_usage};
use hotrow_report::names::one_of;
use hotrow_report::options::{Options, whole};
use hotrow_report::plot::{Chart, Style};
use hotrow_report::progress::Progress;
use hotrow_report::records::{Measurement, Select, Setting, Unit};
use hotrow_report::run::{Machine, Run};
use hotrow_report::units::{Times, apart, count, decimals};

/// Measure shared tables (ROBE): forward and update over rows, compressions and chunks
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    common: Common,
    /// Sizes [default: full, small on a software driver]
    #[arg(long, value_enum)]
    size: Option<Size>,
    /// Floats in a row
    #[arg(long, value_name = "D", default_value_t = 128, value_parser = whole(1u32..=65536))]
    dim: u32,
    /// Rows looked up in a batch [default: 10240, small 1024]
    #[arg(long, value_name = "N", value_parser = whole(1u32..=1 << 24))]
    batch: Option<u32>,
    /// Update rule: sgd, momentum, adagrad, adam, ftrl or lion
    #[arg(long, default_value_t = OptimizerKind::Sgd, value_parser = one_of(OptimizerKind::ALL))]
    optimizer: OptimizerKind,
    /// Most memory of an array with its sums; larger ones are left out [default: on the CPU 8 GiB or three quarters of the free memory]
    #[arg(long, value_name = "SIZE", value_parser = amount::bytes)]
    memory: Option<u64>,
    /// Seconds after which no further array begins [default: 300, on the CPU 900, small 180]
    #[arg(long, value_name = "S", value_parser = whole(1u64..=3600))]
    seconds: Option<u64>,
}

/// Rows of the table at full size; ROBE's largest has 256 M. From one to the next it is as far as from one compression to the next, so three
/// tables share the size of an array. At small size they have a 256th.
const ROWS: [u32; 3] = [2_560_000, 25_600_000, 256_000_000];
/// ROBE's chunk first, and one weight a value.
const CHUNKS: [u32; 2] = [CHUNK, 1];
/// The compressions: a table as large as its values is no array to share.
const SHARED: &[f64] = COMPRESSIONS.split_at(1).1;
/// Batches in turn, so that no batch finds its weights in a chip's caches.
const TURNS: usize = 4;

const WAYS: [(&str, Backward); 3] =
    [("dense update", Backward::Dense), ("sparse update", Backward::Sparse), ("atomic update", Backward::Atomic)];

/// The device and the limits of a run.
struct Plan<'a> {
    /// `None` on the CPU.
    clock: Option<&'a Clock>,
    rounds: Rounds,
    rows: [u32; 3],
    dim: u32,
    batch: u32,
    /// The most bytes that an array with its sums may take.
    memory: Option<u64>,
    optimizer: Optimizer,
    seed: u32,
    deadline: &'a Deadline,
}

pub(super) fn run(options: &Options, args: &Args) -> Result<(), Failure> {
    let optimizer = Optimizer::usual(args.optimizer, 1e-3);
    ensure_usage!(
        !matches!(optimizer.kind, OptimizerKind::RowWiseAdaGrad | OptimizerKind::RowWiseAdam),
        "--optimizer: wanted sgd, momentum, adagrad, adam, ftrl or lion with bench robe, found {}; a shared weight belongs to no row",
        optimizer.kind
    );
    args.common.make_folder(options)?;
    let context = options.backend.open("running")?;
    let hardware = context.as_ref().is_some_and(|context| context.caps().is_hardware());
    let size = args.size.unwrap_or(if hardware || context.is_none() { Size::Full } else { Size::Small });
    let seconds = args.seconds.unwrap_or(if context.is_some() { size.of(180, 300) } else { size.of(180, 900) });
    let deadline = Deadline::new(Duration::from_secs(seconds));
    let clock = context.as_ref().map(|context| Clock::new(context, size.rounds()));
    let plan = Plan {
        clock: clock.as_ref(),
        rounds: size.rounds(),
        rows: ROWS.map(|rows| size.of(rows / 256, rows)),
        dim: args.dim,
        batch: args.batch.unwrap_or(size.of(1024, 10_240)),
        memory: args.memory.or_else(|| context.is_none().then(free)),
        optimizer,
        seed: options.group_seed(),
        deadline: &deadline,
    };
    let smallest = SHARED.iter().filter_map(|&by| Config::compressed(&plan.rows[..1], plan.dim, by, 1).ok());
    let least = smallest.map(|config| config.table_bytes()).min().unwrap_or(0);
    ensure_usage!(
        args.memory.is_none_or(|most| most >= least),
        "--memory: wanted at least {least} B, the smallest array, found {}; give more, or leave it out",
        args.memory.unwrap_or(0)
    );
    let mut run = args.common.start(options, "bench robe", size.of("small", "full"));
    let shape = format!("one table x {}, {} rows a batch, no pooling, {}", plan.dim, plan.batch, optimizer.kind);
    run.describe("array", shape);
    let backend = if context.is_some() { "gpu" } else { "cpu" };
    run.on(context.as_ref().map_or_else(Machine::cpu, Machine::of));
    let adds = match context.as_ref().map(|context| context.caps().choose_add()) {
        None => "sums of one thread, index by index",
        Some(AddBody::Native) => "the device's own additions",
        Some(AddBody::Exchange) => "exchanges tried again: no float atomics here",
    };
    run.describe("atomic update", adds);
    let complaints = context.as_ref().map(Complaints::of);
    measure(&plan, &mut run)?;
    if let Some(error) = complaints.and_then(|complaints| complaints.first()) {
        run.leave_out("trust in these figures", error);
    }
    flat(&mut run);
    let goals = size == Size::Full && (plan.dim, plan.batch) == (128, 10_240);
    run.judge(hardware && goals, deadline.seconds());
    let stem = format!("robe-{backend}");
    let drawn = chart(&plan, &run).write_any(&args.common.out.join(&stem))?;
    Ok(args.common.finish(options, &run, &stem, usize::MAX, drawn.as_slice())?)
}

/// 8 GiB, or three quarters of the free memory if that is less.
fn free() -> u64 {
    const MOST: u64 = 8 << 30;
    clock::memory(true).map_or(MOST, |bytes| (bytes / 4 * 3).min(MOST))
}

impl Plan<'_> {
    /// Returns an error if `bytes` bytes exceed the memory limit, or if the time is up.
    fn has_room(&self, bytes: u64, of: &str) -> Result<(), String> {
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        match self.memory {
            Some(most) if bytes > most => {
                Err(format!("memory: wanted at most {:.3} GiB {of} (--memory), found {:.3} GiB", gib(most), gib(bytes)))
            }
            _ => self.deadline.over().map_or(Ok(()), Err),
        }
    }
}

/// Measures every array, small ones first. Those without room are left out with the reason.
fn measure(plan: &Plan<'_>, run: &mut Run) -> anyhow::Result<()> {
    let mut found: Vec<(String, f64, Config)> = Vec::new();
    for (rows, chunk) in plan.rows.into_iter().flat_map(|rows| CHUNKS.map(|chunk| (rows, chunk))) {
        for &compression in SHARED {
            let name = format!("{} rows at {}x in chunks of {chunk}", count(rows.into()), decimals(compression));
            match Config::compressed(&[rows], plan.dim, compression, chunk) {
                Ok(config) => found.push((name, compression, config)),
                Err(reason) => run.leave_out(name, reason.to_string()),
            }
        }
    }
    found.sort_by_key(|(.., config)| (config.chunk != CHUNK, config.weights));
    let of = |config: &Config| (config.table_bytes(), format!("{} weights", count(config.weights.into())));
    let arrays = found.iter().map(|(.., config)| of(config)).collect();
    let of_host = plan.clock.is_none_or(|clock| !clock.timed.caps().is_hardware());
    run.note_cached("arrays", clock::last_level_cache(clock::CACHES).filter(|_| of_host), &arrays);
    let progress = Progress::new("shared arrays", found.len() as u64);
    for (name, compression, config) in found {
        let config = config.with_pooling(Pooling::None).with_optimizer(plan.optimizer).with_seed(plan.seed);
        let room = plan.has_room(config.table_bytes(), "an array");
        match room.and_then(|()| Array::new(plan, config.clone()).map_err(|error| error.to_string())) {
            Ok(made) => array(plan, run, made, (&name, compression, &config))?,
            Err(reason) => run.leave_out(name, reason),
        }
        progress.advance(1);
    }
    Ok(())
}

/// An array of shared weights: on the CPU by the wall clock, on a GPU by its timestamps.
enum Array<'a> {
    Cpu(Box<CpuSharedGroup>, Rounds),
    Gpu(Box<SharedGroup>, &'a Clock),
}

impl<'a> Array<'a> {
    fn new(plan: &Plan<'a>, config: Config) -> Result<Self, Error> {
        Ok(match plan.clock {
            // After 300 ms, three rounds of a step are enough.
            None => Self::Cpu(
                Box::new(CpuSharedGroup::new(config)?),
                Rounds { slice: Duration::from_millis(300), ..plan.rounds },
            ),
            Some(clock) => Self::Gpu(Box::new(SharedGroup::new(&clock.timed, config)?), clock),
        })
    }

    /// Gives the array this configuration. Returns the times of forward and of backward over batches of rows in turn, in bags of one. The first step,
    /// which allocates and compiles, is not counted.
    fn steps(&mut self, config: Config, batches: &[Vec<u32>]) -> anyhow::Result<[Times; 2]> {
        let offsets: Vec<u32> = (0..=batches[0].len() as u32).collect();
        let mut turn = 0;
        match self {
            Self::Cpu(group, rounds) => {
                group.reconfigure(config)?;
                let grads = gradients(group.output_len(batches[0].len(), batches[0].len()), 1.0);
                let mut one = || {
                    turn += 1;
                    on_cpu(&mut **group, (&batches[(turn - 1) % batches.len()], &offsets), &grads)
                };
                one()?;
                rounds.repeat(one)
            }
            Self::Gpu(group, clock) => {
                group.reconfigure(config)?;
                let parts: Vec<_> = batches.iter().map(|rows| (rows.clone(), offsets.clone())).collect();
                let data = Inputs::new(clock, &parts, group.config().dim, 1.0);
                let mut step = |phase: usize, encoder: &mut _| -> anyhow::Result<()> {
                    if phase == 1 {
                        return Ok(group.encode_backward(encoder, data.grads.slice(..))?);
                    }
                    turn += 1;
                    Ok(group.encode_forward(encoder, &data.batch(turn - 1), data.outputs.slice(..), Mode::Train)?)
                };
                const PHASES: [&str; 2] = ["forward", "backward"];
                clock.timeline.listen(false);
                clock.round(&PHASES, &mut step)?;
                let measured = clock.measure(&PHASES, step)?;
                group.check()?;
                Ok(PHASES.map(|phase| measured.phase(phase).unwrap_or_default()))
            }
        }
    }
}

/// Measures the ways of updating an array, and records them with their comparison.
fn array(
    plan: &Plan<'_>,
    run: &mut Run,
    mut array: Array<'_>,
    (name, compression, config): (&str, f64, &Config),
) -> anyhow::Result<()> {
    let rows = config.tables[0];
    let mut random = random(plan.seed, u64::from(rows));
    let mut batch = || (0..plan.batch).map(|_| random.random_range(0..rows)).collect();
    let batches: Vec<Vec<u32>> = (0..TURNS).map(|_| batch()).collect();
    let covered = config.most_covered(plan.batch);
    // Goals select arrays by compression, and by whether a batch may touch the whole of one.
    let place = setting(config, compression);
    let place = if compression >= 1000.0 { place.with("from 1000x", "yes") } else { place };
    let place = if config.weights <= covered { place.with("all touched", "yes") } else { place };
    let mut lowest = [None; 3];
    run.at("array", &place).push("touched at most", f64::from(covered), Unit::Count);
    for ((way, backward), lowest) in WAYS.into_iter().zip(&mut lowest) {
        // Atomic sums have a float for each weight beside the array.
        let beside = if backward == Backward::Atomic { 4 * u64::from(config.weights) } else { 0 };
        let taken = plan.has_room(config.table_bytes() + beside, "an array and its sums").and_then(|()| {
            // Any error but a lack of room ends the run.
            match array.steps(config.clone().with_backward(backward), &batches) {
                Err(error) if has_no_room(&error) => Err(error.to_string()),
                taken => Ok(taken),
            }
        });
        match taken {
            Ok(taken) => {
                let [forward, update] = taken?;
                let mut at = run.at("array", &place);
                at.timed("forward", Some(forward).filter(|_| backward == Backward::Dense));
                at.timed(way, update);
                *lowest = Some(update.lowest).filter(|&seconds| seconds > 0.0);
            }
            Err(reason) => run.leave_out(format!("{way} of {name}"), reason),
        }
    }
    // Lowest times, since other load on the machine only adds time.
    let [dense, sparse, atomic] = lowest;
    let better = dense.zip(sparse).map(|(dense, sparse): (f64, f64)| dense.min(sparse));
    let ratio = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a / b);
    let mut at = run.at("array", &place);
    at.push("sparse against dense update", ratio(sparse, dense), Unit::Times);
    at.push("atomic against the better update", ratio(atomic, better), Unit::Times);
    Ok(())
}

/// Records how far times differ between numbers of rows of arrays of one size: the slowest over the fastest (lowest times). Atomic updates
/// are left out, since collisions of their additions vary.
fn flat(run: &mut Run) {
    for (way, chunk) in
        ["forward", "dense update", "sparse update"].into_iter().flat_map(|way| CHUNKS.map(|z| (way, z)))
    {
        let all = Select { what: way, shape: "array", setting: &format!("chunk={chunk}") };
        let mut times: Vec<(f64, f64)> = run
            .select(all)
            .filter_map(|record| Some((record.setting.number("weights")?, record.spread?.lowest)))
            .collect();
        times.sort_by(|a, b| a.0.total_cmp(&b.0));
        let same = times.chunk_by(|a, b| a.0 == b.0);
        let slowest = same.filter_map(|group| apart(&group.iter().map(|one| one.1).collect::<Vec<_>>()));
        let slowest = slowest.reduce(f64::max);
        let setting = Setting::default().with("way", way).with("chunks of", chunk);
        run.at("flat", &setting).push("slowest against fastest", slowest, Unit::Times);
    }
}

/// The times of the arrays by their weights, with a line for each way and chunk.
fn chart(plan: &Plan<'_>, run: &Run) -> Chart {
    let mut chart = Chart::new("Weights of the array", "Time");
    chart.title = format!("Shared tables, batch {}: {}", plan.batch, run.title());
    (chart.log_x, chart.log_y) = (true, true);
    let line = |record: &Measurement| format!("{}, chunks of {}", record.what, record.words(&["chunk"]));
    let style = |record: &Measurement| Style {
        colour: WAYS.iter().position(|(way, _)| *way == record.what).unwrap_or(WAYS.len()),
        dashed: record.is("chunk", "1"),
        markers: true,
    };
    let shown = Select { what: "forward|dense update|sparse update|atomic update", shape: "array", setting: "" };
    chart.lines(run.select(shown), line, |record| record.setting.number("weights"), style);
    chart
}
