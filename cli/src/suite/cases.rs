//! The workloads and what is drawn from them, a function a section.

use crate::uvm::{UvmDevice, UvmModel, UvmTable};
use hotrow::{Error, GroupConfig, Init, Optimizer, Placement, Pooling, Precision};

use super::goals::{Id, reach};
use super::lab::Lab;
use super::report::{Case, Point, Report, Uvm};
use super::shapes::{Batch, distinct, pool, random, shuffle, uniform, zipf};
use super::workload::Workload;

/// TBE's bag.
pub(super) const BAG: u32 = 20;
/// TBE's and NVIDIA's width.
pub(super) const DIM: u32 = 128;
/// Batches in turn: enough that none finds its own rows in the chip's caches.
pub(super) const TURNS: usize = 4;
pub(super) const LR: f32 = 1e-3;

pub(super) fn config(
    tables: &[u32],
    precision: Precision,
    optimizer: Optimizer,
    cache_rows: u32,
    seed: u32,
) -> GroupConfig {
    let mut config = GroupConfig::new(tables, DIM);
    config.precision = precision;
    config.optimizer = optimizer;
    config.cache_rows = cache_rows;
    config.init = Init::Uniform { low: -0.1, high: 0.1 };
    config.seed = seed;
    config.pooling = Pooling::Sum;
    config
}

/// The pool in batches of `n`: afterwards every one of its rows is resident.
pub(super) fn fill(pool: &[u32], n: usize) -> Vec<Batch> {
    pool.chunks(n.max(1)).map(|rows| Batch::of(rows.to_vec(), BAG)).collect()
}

/// How the rows of a batch at full hits are drawn.
#[derive(Clone, Copy)]
enum Draw {
    Uniform,
    Zipf(f64),
}

/// A table whose rows are all in the cache: as many as `bytes` hold of slots of `floats` floats.
fn resident(
    lab: &Lab,
    name: &str,
    bytes: u64,
    draw: Draw,
    (optimizer, floats): (Optimizer, u32),
    why: &'static str,
) -> anyhow::Result<Workload> {
    let (n, wanted) = lab.size.resident();
    let slots = lab.slots(bytes, u64::from(floats * 4));
    let bytes = u64::from(slots) * u64::from(floats * 4);
    let rows = pool(slots, slots / 32);
    let mut random = random(lab.seed, 1);
    let mut batch = || -> anyhow::Result<Batch> {
        let rows = match draw {
            Draw::Uniform => uniform(&rows, n, &mut random),
            Draw::Zipf(alpha) => zipf(&rows, n, alpha, &mut random)?,
        };
        Ok(Batch::of(rows, BAG))
    };
    let batches = (0..TURNS).map(|_| batch()).collect::<anyhow::Result<_>>()?;
    let law = match draw {
        Draw::Uniform => "uniform".to_owned(),
        Draw::Zipf(alpha) => format!("Zipf {alpha}"),
    };
    Ok(Workload {
        name: name.to_owned(),
        shape: format!("{n} indices, {law}, over {} resident rows x {DIM}, bags of {BAG}", rows.len()),
        why,
        warm_state: "every row of the pool fetched once, so all hit".to_owned(),
        // A binding may fall short of a round number.
        scale: (bytes < wanted - wanted / 1000)
            .then(|| format!("{} MiB of slots where the goal has {} MiB", bytes >> 20, wanted >> 20)),
        config: config(&[slots], Precision::Fp32, optimizer, slots, lab.seed),
        warm: fill(&rows, n),
        batches,
        backward: true,
    })
}

/// The share of the copy's bandwidth that a whole phase reaches on the bytes that its kernels must move.
fn phase_share(report: &Report, case: &Case, phase: &str) -> Option<f64> {
    let seconds = if phase == "forward" { case.forward? } else { case.backward? }.median;
    Some(case.bytes(phase) / seconds / report.copy_bytes_per_second?)
}

/// Runs at the goal's size, or at that of one binding where the device has not the memory.
fn at_most(lab: &Lab, name: &str, draw: Draw, slot: (Optimizer, u32), why: &'static str) -> anyhow::Result<Case> {
    let run = |bytes| resident(lab, name, bytes, draw, slot, why)?.run(lab);
    let wanted = lab.size.resident().1;
    match run(wanted) {
        Err(error) if wanted > lab.binding() && too_large(&error) => run(lab.binding()),
        done => done,
    }
}

fn too_large(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Error::OutOfMemory { .. } | Error::TooLarge { .. }))
}

/// Full hits: gather, forward, backward. Uniform with SGD, Zipf with AdaGrad.
pub(crate) fn hits(lab: &Lab, report: &mut Report) -> anyhow::Result<()> {
    let even = "the goal's size where it is full: far beyond the chip's caches, every access a hit, so nothing but row traffic";
    let skewed = "the goal's size where it is full: a third of a batch's accesses repeat, so merging counts";
    let case = at_most(lab, "hits-uniform", Draw::Uniform, (Optimizer::sgd(LR), DIM), even)?;
    let gather = case.kernel("gather", "forward").and_then(|kernel| kernel.bytes_per_second);
    let share = gather.zip(report.copy_bytes_per_second).map(|(rate, copy)| rate / copy);
    let remark = case.scale.clone().unwrap_or_default();
    // Half the slots are another goal.
    let judges = lab.judges() && case.scale.is_none();
    reach(&mut report.goals, Id::Gather, share, judges, remark.clone());
    let share = phase_share(report, &case, "forward");
    reach(&mut report.goals, Id::Forward, share, judges, remark);
    report.cases.push(case);
    let case = at_most(lab, "hits-zipf", Draw::Zipf(1.05), (Optimizer::adagrad(LR), 2 * DIM), skewed)?;
    let share = phase_share(report, &case, "backward");
    reach(&mut report.goals, Id::Backward, share, lab.judges(), case.scale.clone().unwrap_or_default());
    report.cases.push(case);
    Ok(())
}

/// Where the cache is compared with itself: half the goal's size, and half the time to make the tables.
fn one_binding(lab: &Lab) -> u64 {
    lab.size.resident().1.min(lab.binding())
}

/// What element-wise state in the slot costs.
pub(crate) fn optimizers(lab: &Lab, report: &mut Report) -> anyhow::Result<()> {
    let why = "element-wise state doubles a row's bytes; in the slot it must not cost more than that";
    let mut seconds = Vec::new();
    for (name, optimizer) in [
        ("optimizer-sgd", Optimizer::sgd(LR)),
        ("optimizer-row-wise", Optimizer::row_wise_adagrad(LR)),
        ("optimizer-adagrad", Optimizer::adagrad(LR)),
    ] {
        // The same rows for all: as many as one binding holds with the widest state.
        let case = resident(lab, name, one_binding(lab), Draw::Zipf(1.05), (optimizer, 2 * DIM), why)?.run(lab)?;
        seconds.extend(case.step_seconds());
        report.cases.push(case);
    }
    let ratio = (seconds.len() == 3).then(|| seconds[2] / seconds[0]);
    reach(&mut report.goals, Id::ElementWise, ratio, lab.judges(), "");
    Ok(())
}

/// What wgpu's runtime checks in the shaders cost.
pub(crate) fn trusted(lab: &Lab, report: &mut Report) -> anyhow::Result<()> {
    let why = "every kernel of a step at full hits, in both shader modes";
    let unchecked = lab.trusted()?;
    let mut seconds = Vec::new();
    for (name, lab) in [("shaders-checked", lab), ("shaders-trusted", &unchecked)] {
        let case = resident(lab, name, one_binding(lab), Draw::Zipf(1.05), (Optimizer::adagrad(LR), 2 * DIM), why)?
            .run(lab)?;
        seconds.extend(case.step_seconds());
        report.cases.push(case);
    }
    let ratio = (seconds.len() == 2).then(|| seconds[0] / seconds[1]);
    reach(&mut report.goals, Id::Trusted, ratio, lab.judges(), "");
    Ok(())
}

/// One row takes a tenth of the accesses.
pub(crate) fn skew(lab: &Lab, report: &mut Report) -> anyhow::Result<()> {
    let n = lab.size.skewed();
    let slots = (n as u32 / 2).next_multiple_of(32);
    let rows = pool(slots, slots / 32);
    let mut seconds = Vec::new();
    for (name, share) in [("skew-even", 0), ("skew-tenth", n / 10)] {
        let mut random = random(lab.seed, 2);
        let mut batch = || {
            let mut all = uniform(&rows, n, &mut random);
            all[..share].fill(rows[0]);
            shuffle(&mut all, &mut random);
            Batch::of(all, BAG)
        };
        let workload = Workload {
            name: name.to_owned(),
            shape: format!(
                "{n} indices, {share} of them to one row, the others uniform over {} rows x {DIM}",
                rows.len()
            ),
            why: "the goal's size where it is full: one row's gradients are a tenth of all, and still one writer updates it",
            warm_state: "every row fetched once, so all hit".to_owned(),
            scale: None,
            config: config(&[slots], Precision::Fp32, Optimizer::sgd(LR), slots, lab.seed),
            warm: fill(&rows, n),
            batches: (0..TURNS).map(|_| batch()).collect(),
            backward: true,
        };
        let case = workload.run(lab)?;
        seconds.extend(case.backward.map(|times| times.median));
        report.cases.push(case);
    }
    let ratio = (seconds.len() == 2).then(|| seconds[1] / seconds[0]);
    reach(&mut report.goals, Id::Skew, ratio, lab.judges(), "");
    Ok(())
}

/// A thousand indices: launches, not bytes.
pub(crate) fn small(lab: &Lab, report: &mut Report) -> anyhow::Result<()> {
    let n = 1000;
    for (name, cached) in [("small-hits", 1), ("small-misses", 8)] {
        let slots = 1 << 15;
        let rows = pool(slots, slots / 32);
        let table = slots * cached;
        let everything: Vec<u32> = (0..table).collect();
        let mut random = random(lab.seed, 3);
        let mut batch = || Batch::of(uniform(if cached == 1 { &rows } else { &everything }, n, &mut random), BAG);
        let workload = Workload {
            name: name.to_owned(),
            shape: format!(
                "{n} indices uniform over {} rows x {DIM}",
                if cached == 1 { rows.len() as u32 } else { table }
            ),
            why: "so few indices that launches are the cost",
            warm_state: "the cache filled once".to_owned(),
            scale: None,
            config: config(&[table], Precision::Int8, Optimizer::row_wise_adagrad(LR), slots, lab.seed),
            warm: fill(&rows, 1 << 13),
            batches: (0..TURNS).map(|_| batch()).collect(),
            backward: true,
        };
        report.cases.push(workload.run(lab)?);
    }
    Ok(())
}

/// TBE's benchmark.
pub(crate) fn tbe(lab: &Lab, report: &mut Report) -> anyhow::Result<()> {
    let (batch_size, tables, rows) = lab.size.tbe();
    let placement = mapped(lab);
    for alpha in [1.0, 1.15] {
        for precision in [Precision::Fp32, Precision::Int8] {
            let mut random = random(lab.seed, 4);
            let table: Vec<u32> = (0..rows).collect();
            let mut batch = || -> anyhow::Result<Batch> {
                let mut feature = |_| {
                    let n = (batch_size * BAG) as usize;
                    // TBE's 1.0 means uniform.
                    if alpha == 1.0 { Ok(uniform(&table, n, &mut random)) } else { zipf(&table, n, alpha, &mut random) }
                };
                Ok(Batch { features: (0..tables).map(&mut feature).collect::<anyhow::Result<_>>()?, bag: BAG })
            };
            let cache = (u64::from(rows) * u64::from(tables) / 5) as u32;
            let mut config = config(&vec![rows; tables as usize], precision, Optimizer::sgd(LR), cache, lab.seed);
            config.placement = placement;
            let workload = Workload {
                name: format!("tbe-{alpha}-{}", format!("{precision:?}").to_lowercase()),
                shape: format!(
                    "B {batch_size}, T {tables}, D {DIM}, L {BAG}, E {rows}, alpha {alpha}, cache of a fifth of the rows, SGD"
                ),
                why: "the shape of TBE's own benchmark",
                warm_state: format!("{WARM} other batches forward"),
                scale: lab.size.scale(),
                config,
                warm: (0..WARM).map(|_| batch()).collect::<anyhow::Result<_>>()?,
                batches: (0..4 * TURNS).map(|_| batch()).collect::<anyhow::Result<_>>()?,
                backward: true,
            };
            report.cases.push(workload.run(lab)?);
        }
    }
    Ok(())
}

/// Batches that fill a cache before TBE's shape is measured.
const WARM: usize = 8;

pub(super) fn is_mapped(lab: &Lab) -> bool {
    lab.timed.caps().mappable
}

/// Mapped, or Device where the device maps nothing; the shape says which, and no goal is met by it then.
pub(super) fn mapped(lab: &Lab) -> Placement {
    if is_mapped(lab) { Placement::Mapped } else { Placement::Device }
}

/// NVIDIA's benchmark of TBE, with a fifth of the distinct rows missing.
pub(crate) fn nvidia(lab: &Lab, report: &mut Report) -> anyhow::Result<()> {
    const TABLES: u32 = 10;
    let (lookups, rows, scale) = lab.size.nvidia();
    for (name, optimizer, id) in [
        ("nvidia-row-wise", Optimizer::row_wise_adagrad(LR), Id::NvidiaStep),
        ("nvidia-element-wise", Optimizer::adagrad(LR), Id::NvidiaElementWise),
    ] {
        let mut random = random(lab.seed, 5);
        // The first half of a table is drawn from, the second half is where the rows come from that are new.
        let known: Vec<u32> = (0..rows / 2).collect();
        let base: Vec<Vec<u32>> = (0..TABLES)
            .map(|_| zipf(&known, (lookups / TABLES) as usize, 1.05, &mut random))
            .collect::<anyhow::Result<_>>()?;
        let leaving: Vec<Vec<Option<u32>>> = base.iter().map(|rows| leaving(rows)).collect();
        let mut fresh = vec![rows / 2; TABLES as usize];
        let mut batches: Vec<Batch> = (0..NEW).map(|_| renewed(&base, &leaving, &mut fresh, rows)).collect();
        let of_base = Batch { features: base.clone(), bag: 10 }.repeats().len();
        let each = batches[0].repeats().len();
        let footprint = of_base + batches.len() * leaving.iter().map(|rows| many(rows) as usize).sum::<usize>();
        let slots = (footprint as f64 * 0.8) as u32;
        let warm = std::iter::once(Batch { features: base, bag: 10 }).chain(batches.drain(..2)).collect();
        let mut config = config(&vec![rows; TABLES as usize], Precision::Int8, optimizer, slots, lab.seed);
        config.placement = mapped(lab);
        let workload = Workload {
            name: name.to_owned(),
            shape: format!(
                "{:?}: {TABLES} tables of {rows} rows x {DIM}, {lookups} lookups, alpha 1.05, {each} distinct rows, cache of {slots} \
                 rows, 0.8 of the rows that the batches touch; a fifth of each batch's distinct rows is new",
                config.placement
            ),
            why: "the shape of NVIDIA's published figures for TBE: 4.77 ms with SGD, 15.0 ms with Adam on an H100",
            warm_state: "the batch without new rows, then two with, forward".to_owned(),
            scale: scale.clone(),
            config,
            warm,
            batches,
            backward: true,
        };
        let case = workload.run(lab)?;
        let remark = format!("{:.1} % of the distinct rows missing", 100.0 * case.facts.missing_share());
        reach(&mut report.goals, id, case.step_seconds(), lab.judges() && is_mapped(lab), remark);
        report.cases.push(case);
    }
    Ok(())
}

/// Batches with new rows.
const NEW: usize = 26;

/// For each access the number of its row among those that make room for new ones: the fifth of the distinct rows that is asked
/// for least.
fn leaving(known: &[u32]) -> Vec<Option<u32>> {
    let mut count = std::collections::BTreeMap::<u32, u32>::new();
    known.iter().for_each(|&row| *count.entry(row).or_default() += 1);
    let mut by_use: Vec<(u32, u32)> = count.into_iter().map(|(row, n)| (n, row)).collect();
    by_use.sort_unstable();
    let fifth = by_use.len() / 5;
    let number: std::collections::BTreeMap<u32, u32> = by_use[..fifth].iter().map(|&(_, row)| row).zip(0..).collect();
    known.iter().map(|row| number.get(row).copied()).collect()
}

/// How many rows leave.
fn many(leaving: &[Option<u32>]) -> u32 {
    leaving.iter().flatten().max().map_or(0, |last| last + 1)
}

/// `base` with the leaving rows replaced by rows of each table's second half not seen for long.
fn renewed(base: &[Vec<u32>], leaving: &[Vec<Option<u32>>], fresh: &mut [u32], rows: u32) -> Batch {
    let feature = |((known, leaving), next): ((&Vec<u32>, &Vec<Option<u32>>), &mut u32)| {
        let half = rows / 2;
        let new = |number: u32| half + (*next - half + number) % (rows - half);
        let features = known.iter().zip(leaving).map(|(&row, number)| number.map_or(row, new)).collect();
        *next = new(many(leaving));
        features
    };
    Batch { features: base.iter().zip(leaving).zip(fresh).map(feature).collect(), bag: 10 }
}

/// Batches of `n` distinct rows: 95 % of each are those always asked for, which come first; no other row is asked for twice.
pub(super) fn mostly_hits(lab: &Lab, (n, rows): (usize, u32), count: usize) -> (Vec<u32>, Vec<Batch>) {
    let misses = n / 20;
    let half = |rows: std::ops::Range<u32>, n| distinct(&rows.collect::<Vec<_>>(), n);
    let (hot, cold) = (half(0..rows / 2, n - misses), half(rows / 2..rows, count * misses));
    let mut random = random(lab.seed, 6);
    let mut batch = |cold: &[u32]| {
        let mut all = [&hot, cold].concat();
        shuffle(&mut all, &mut random);
        Batch::of(all, BAG)
    };
    let batches = cold.chunks_exact(misses).map(&mut batch).collect();
    (hot, batches)
}

/// 95 % hits over the bus: INT8 with a cache, FP32 without, unified memory.
pub(crate) fn over_the_bus(lab: &Lab, report: &mut Report) -> anyhow::Result<()> {
    let (n, rows) = lab.size.mapped();
    let placement = mapped(lab);
    let slots = (2 * n as u32).next_multiple_of(32);
    let (hot, batches) = mostly_hits(lab, (n, rows), 26);
    let mut workload = Workload {
        name: "mapped-int8".to_owned(),
        shape: format!(
            "{n} distinct indices, 95 % of them to rows that are always asked for, {rows} rows x {DIM}, {placement:?}"
        ),
        why: "P1's case: 95 % hits, the rest over the bus, packed to a quarter",
        warm_state: "the rows always asked for fetched once, then steps".to_owned(),
        scale: None,
        config: config(&[rows], Precision::Int8, Optimizer::sgd(LR), slots, lab.seed),
        warm: vec![Batch::of(hot.clone(), BAG)],
        batches,
        backward: true,
    };
    workload.config.placement = placement;
    let case = workload.run(lab)?;
    let rows_of_steps: Vec<Vec<u32>> = workload.batches.iter().map(Batch::indices).collect();
    // The bound: what must move in device memory, or what must cross the bus, whichever takes longer.
    let device = report.copy_bytes_per_second.map(|copy| case.bytes("forward") / copy);
    let bus = report.bus_bytes_per_second.map_or(Some(0.0), |bus| Some(case.facts.table_bytes(false) / bus));
    let bound = device.zip(bus).map(|(device, bus)| device.max(bus));
    let forward = case.forward.map(|times| times.median);
    let reached = bound.zip(forward).map(|(bound, forward)| bound / forward);
    let (slots, gather) =
        (workload.config.cache_rows, case.kernel("gather", "forward").and_then(|kernel| kernel.seconds));
    let hit_rate = case.hit_rate;
    report.cases.push(case);
    workload.name = "mapped-fp32-uncached".to_owned();
    (workload.config.precision, workload.config.cache_rows) = (Precision::Fp32, 0);
    workload.warm_state = "none".to_owned();
    workload.warm.clear();
    let uncached = workload.run(lab)?;
    let ratio = uncached.forward.zip(forward).map_or_else(String::new, |(uncached, forward)| {
        format!("{:.1} times uncached FP32 mapped; hit rate {:.3}", uncached.median / forward, hit_rate)
    });
    report.cases.push(uncached);
    reach(&mut report.goals, Id::MappedBound, reached, lab.judges() && is_mapped(lab), ratio);
    let gather = gather.map_or(0.0, |times| times.median);
    let copied = unified(lab, report, &hot, &rows_of_steps, (rows, slots), gather)?;
    let times = forward.map(|forward| copied / forward);
    let judges = lab.judges() && is_mapped(lab);
    reach(&mut report.goals, Id::MappedUvm, times, judges, "pages of 64 KiB really moved, faults for free");
    Ok(())
}

/// The UVM model over the same steps with the same device bytes, predicted and with its pages really moved; seconds of the latter's
/// forward.
fn unified(
    lab: &Lab,
    report: &mut Report,
    hot: &[u32],
    steps: &[Vec<u32>],
    (rows, slots): (u32, u32),
    gather: f64,
) -> anyhow::Result<f64> {
    let model = UvmModel {
        bus_bytes_per_second: report.bus_bytes_per_second.unwrap_or(UvmModel::default().bus_bytes_per_second),
        fault_seconds: 0.0,
        ..UvmModel::default()
    };
    let row = u64::from(DIM) * 4;
    let mut table = UvmTable::new(model, row, u64::from(slots) * row)?;
    let mut device =
        UvmDevice::new(&lab.timed, table.clone(), rows, DIM, |row, floats| floats.fill(row as f32 * 1e-6))?;
    let [mut bytes, mut predicted, mut played] = [0.0; 3];
    // After as many steps as it takes to throw out what no step asks for.
    let warm = steps.len() / 2;
    for (number, rows) in std::iter::once(hot).chain(steps.iter().map(Vec::as_slice)).enumerate() {
        let offsets: Vec<u32> = (0..=rows.len() as u32).step_by(BAG as usize).chain([rows.len() as u32]).collect();
        let counted = table.pass(rows, false);
        table.pass(rows, true);
        let forward = device.forward(rows, &offsets)?;
        device.backward(rows, &offsets, &vec![LR; (offsets.len() - 1) * DIM as usize], LR)?;
        if number > warm {
            bytes += forward.moved.bytes_in as f64;
            predicted += model.seconds(&counted);
            played += forward.seconds;
        }
    }
    let [bytes, predicted, played] = [bytes, predicted, played].map(|sum| sum / (steps.len() - warm).max(1) as f64);
    let mut push = |what, forward_seconds| {
        report.uvm.push(Uvm { case: "UVM model".into(), what, bytes_in: bytes, forward_seconds });
    };
    push("predicted: bus time of the pages, and the gather measured here", predicted + gather);
    push("measured: the pages really moved, and rows gathered from them", played);
    Ok(played)
}

/// Steps over ever more distinct rows, all resident.
pub(crate) fn scaling(lab: &Lab, report: &mut Report) -> anyhow::Result<()> {
    const NARROW: u32 = 32;
    let counts = lab.size.distinct();
    let most = counts.iter().copied().max().unwrap_or(1) as u32;
    // The same cache for all; a little larger, since sets do not fill evenly.
    let slots = (most + most / 8).next_multiple_of(32);
    let rows = pool(slots, slots / 32);
    for &n in counts {
        let n = n.min(rows.len());
        let batch = Batch::of(distinct(&rows, n), BAG);
        let mut config = config(&[slots], Precision::Fp32, Optimizer::sgd(LR), slots, lab.seed);
        config.dim = NARROW;
        let workload = Workload {
            name: format!("distinct-{n}"),
            shape: format!("{n} distinct indices over {} resident rows x {NARROW}, bags of {BAG}", rows.len()),
            why: "one decade or half a decade of work; narrow rows, so that ten million fit one binding",
            warm_state: "the same rows fetched once, so all hit".to_owned(),
            scale: None,
            config,
            warm: vec![batch.clone()],
            batches: vec![batch],
            backward: true,
        };
        let case = workload.run(lab)?;
        if let (Some(forward), Some(backward)) = (case.forward, case.backward) {
            report.scaling.push(Point {
                distinct: case.facts.distinct,
                forward,
                backward,
                seconds: forward.median + backward.median,
                dispatches: case.dispatches,
            });
        }
        if lab.out_of_time() {
            report.left_out.push(format!("time against work beyond {n} distinct rows: out of time"));
            break;
        }
    }
    let long: Vec<(f64, f64)> = report
        .scaling
        .iter()
        .filter(|point| point.distinct >= 0.99e5)
        .map(|point| (point.distinct, point.seconds))
        .collect();
    reach(&mut report.goals, Id::Scaling, off_the_line(&long), lab.judges(), format!("{} points", long.len()));
    Ok(())
}

/// The largest relative distance of a point from the straight line that is nearest in relative terms; `None` below three points.
fn off_the_line(points: &[(f64, f64)]) -> Option<f64> {
    if points.len() < 3 {
        return None;
    }
    // Least squares of 1 - (a + b x) / y over a and b.
    let sum = |of: fn(f64, f64) -> f64| points.iter().map(|&(x, y)| of(x, y)).sum::<f64>();
    let (aa, ab, bb) = (sum(|_, y| 1.0 / (y * y)), sum(|x, y| x / (y * y)), sum(|x, y| x * x / (y * y)));
    let (ya, yb) = (sum(|_, y| 1.0 / y), sum(|x, y| x / y));
    let determinant = aa * bb - ab * ab;
    let (a, b) = ((ya * bb - yb * ab) / determinant, (yb * aa - ya * ab) / determinant);
    Some(points.iter().map(|&(x, y)| (1.0 - (a + b * x) / y).abs()).fold(0.0, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_straight_line_is_straight_and_a_bent_one_is_not() {
        let straight: Vec<(f64, f64)> = [1e5, 3e5, 1e6, 1e7].map(|x| (x, 2e-4 + 3e-9 * x)).into();
        assert!(off_the_line(&straight).unwrap() < 1e-6);
        let bent: Vec<(f64, f64)> = [1e5, 3e5, 1e6, 1e7].map(|x: f64| (x, 1e-9 * x.powf(1.3))).into();
        assert!(off_the_line(&bent).unwrap() > 0.2);
        assert_eq!(off_the_line(&straight[..2]), None);
    }

    #[test]
    fn a_fifth_of_the_rows_is_new() {
        let base = vec![vec![1, 1, 2, 3, 4, 5, 5]];
        let leaving = vec![leaving(&base[0])];
        assert_eq!(leaving[0], [None, None, Some(0), None, None, None, None]);
        let mut fresh = vec![98];
        for wanted in [98, 99, 50] {
            let batch = renewed(&base, &leaving, &mut fresh, 100);
            assert_eq!(batch.features[0], [1, 1, wanted, 3, 4, 5, 5]);
        }
        assert_eq!(fresh, [51]);
    }
}
