//! `hotrow bench robe`: forward and update of shared tables, over three numbers of rows, ROBE's compressions and two chunks.

mod runner;

use hotrow::robe::{Backward, Config};
use hotrow::{Optimizer, OptimizerKind, Pooling, internals::AddBody};
use rand::RngExt as _;
use std::time::Duration;

use super::common::Common;
use super::suite::{Size, shapes::random};
use crate::plan::amount;
use crate::plan::robe::{CHUNK, COMPRESSIONS, setting};
use hotrow_report::clock::{self, Clock, Complaints, Deadline, has_no_room};
use hotrow_report::failure::{Failure, ensure_usage};
use hotrow_report::names::one_of;
use hotrow_report::options::{Options, whole};
use hotrow_report::plot::{Heat, Panel};
use hotrow_report::progress::Progress;
use hotrow_report::records::{Select, Setting, Unit, table};
use hotrow_report::run::{Machine, Run};
use hotrow_report::units::{apart, count, decimals};
use runner::Runner;

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
    /// Update rule: sgd, momentum, adagrad or adam
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

/// The limits of a run.
struct Plan<'a> {
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
    let optimizer = Optimizer::sgd(1e-3).with_kind(args.optimizer);
    ensure_usage!(
        !matches!(optimizer.kind, OptimizerKind::RowWiseAdaGrad | OptimizerKind::RowWiseAdam),
        "--optimizer: wanted sgd, momentum, adagrad or adam with bench robe, found {}; a shared weight belongs to no row",
        optimizer.kind
    );
    args.common.make_folder(options)?;
    let context = options.backend.open("running")?;
    let hardware = context.as_ref().is_some_and(|context| context.caps().is_hardware());
    let size = args.size.unwrap_or(if hardware || context.is_none() { Size::Full } else { Size::Small });
    let seconds = args.seconds.unwrap_or(if context.is_some() { size.of(180, 300) } else { size.of(180, 900) });
    let deadline = Deadline::new(Duration::from_secs(seconds));
    let plan = Plan {
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
    let mut run = args.common.start(options, "bench robe", size.name());
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
    let clock = context.as_ref().map(|context| Clock::new(context, size.rounds()));
    measure(&plan, &mut run, &mut Runner { clock: clock.as_ref(), rounds: size.rounds(), array: None })?;
    if let Some(error) = complaints.and_then(|complaints| complaints.first()) {
        run.leave_out("trust in these figures", error);
    }
    flat(&mut run);
    let goals = size.is_full() && (plan.dim, plan.batch) == (128, 10_240);
    run.judge(hardware && goals, deadline.seconds());
    let stem = format!("robe-{backend}");
    let charts = match heat(&plan, &run) {
        Some(heat) => vec![heat.write(&args.common.out.join(format!("{stem}-heat")))?],
        None => Vec::new(),
    };
    let tables = tables(&run);
    Ok(args.common.finish(options, &run, &stem, (&tables, tables.len()), &charts)?)
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
fn measure(plan: &Plan<'_>, run: &mut Run, runner: &mut Runner<'_>) -> anyhow::Result<()> {
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
    let of_host = runner.clock.is_none_or(|clock| !clock.timed.caps().is_hardware());
    run.note_cached("arrays", clock::last_level_cache(clock::CACHES).filter(|_| of_host), &arrays);
    let progress = Progress::new("shared arrays", found.len() as u64);
    for (name, compression, config) in found {
        let config = config.with_pooling(Pooling::None).with_optimizer(plan.optimizer).with_seed(plan.seed);
        let room = plan.has_room(config.table_bytes(), "an array");
        match room.and_then(|()| runner.make(config.clone()).map_err(|error| error.to_string())) {
            Ok(()) => array(plan, run, runner, (&name, compression, &config))?,
            Err(reason) => run.leave_out(name, reason),
        }
        progress.advance(1);
    }
    Ok(())
}

/// Measures the ways of updating an array, and records them with their comparison.
fn array(
    plan: &Plan<'_>,
    run: &mut Run,
    runner: &mut Runner<'_>,
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
            match runner.steps(config.clone().with_backward(backward), &batches) {
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

fn tables(run: &Run) -> Vec<(String, Option<String>)> {
    const UPDATES: &str = "dense update|sparse update|atomic update";
    let mut tables = Vec::new();
    for chunk in CHUNKS {
        for (title, what) in [("forward", "forward"), ("dense / sparse / atomic update", UPDATES)] {
            let chunks = format!("chunk={chunk}");
            let shown = Select { what, shape: "array", setting: &chunks };
            let title = format!("{title}, chunks of {chunk}: rows down, compression across");
            tables.push((title, table(run.select(shown), &["rows"], "compression")));
        }
    }
    let flat = Select { what: "", shape: "flat", setting: "" };
    let title = "One size of array, several numbers of rows: slowest against fastest.".to_owned();
    tables.push((title, table(run.select(flat), &["chunks of"], "way")));
    tables
}

/// The times of the arrays: rows down, compression across, a panel for each way and chunk.
fn heat(plan: &Plan<'_>, run: &Run) -> Option<Heat> {
    let rows = plan.rows.map(f64::from);
    let panel = |(chunk, what): (u32, &str)| {
        let chunks = format!("chunk={chunk}");
        let select = Select { what, shape: "array", setting: &chunks };
        let title = format!("{what}, chunks of {chunk}");
        Panel::of(title, "compression".to_owned(), run.select(select), ("rows", &rows), ("compression", SHARED))
    };
    let ways =
        CHUNKS.into_iter().flat_map(|chunk| ["forward", "dense update", "sparse update"].map(|way| (chunk, way)));
    let panels: Vec<Panel> = ways.map(panel).collect();
    let any = panels.iter().any(|panel| panel.values.iter().flatten().any(Option::is_some));
    let title = format!("Shared tables: milliseconds, rows down, batch {}: {}", plan.batch, run.title());
    any.then_some(Heat { title, panels })
}
