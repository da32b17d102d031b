//! The workloads of the suite, a function for each part, and the drawing of their rows.

use hotrow::{ContextOptions, Error, LookupBody, Optimizer, Precision, Shaders};

use super::bench::{Bench, DIM};
use super::shapes::{Batch, distinct, pool, random, shuffle, uniform, zipf};
use super::workload::Workload;
use crate::report::{Setting, Unit};
use rand_pcg::Pcg64;
use std::collections::BTreeMap;

pub(super) const BAG: u32 = 20;
/// Batches in turn, enough that none finds its own rows in the chip's caches.
pub(super) const TURNS: usize = 4;
pub(super) const LR: f32 = 1e-3;

/// The pool in batches of `n`. After them all its rows are resident.
pub(super) fn fill(pool: &[u32], n: usize) -> Vec<Batch> {
    pool.chunks(n.max(1)).map(|rows| Batch::of(rows.to_vec(), BAG)).collect()
}

/// A table whose rows are all in the cache: `bytes` bytes of slots of `floats` floats. Batches are uniform, or follow Zipf's law.
fn resident(
    bench: &Bench<'_>,
    name: &str,
    bytes: u64,
    alpha: Option<f64>,
    (optimizer, floats): (Optimizer, u32),
) -> anyhow::Result<Workload> {
    let (n, wanted) = bench.resident();
    let slots = bench.slots(bytes, u64::from(floats * 4));
    let bytes = u64::from(slots) * u64::from(floats * 4);
    let rows = pool(slots, slots / 32);
    let mut random = random(bench.seed, 1);
    let batch = || drawn(&rows, n, alpha, &mut random).map(|rows| Batch::of(rows, BAG));
    let batches = std::iter::repeat_with(batch).take(TURNS).collect::<anyhow::Result<_>>()?;
    let law = alpha.map_or_else(|| "uniform".to_owned(), |alpha| format!("Zipf {alpha}"));
    let shape = format!("{n} indices, {law}, over {} resident rows x {DIM}, bags of {BAG}", rows.len());
    // Uniform rows are judged at the goal's size only; bindings may be slightly smaller than a round number.
    let short = alpha.is_none() && bytes < wanted - wanted / 1000;
    let scaled = short.then(|| format!("{} of {} MiB of slots", bytes >> 20, wanted >> 20));
    let config = bench.config(&[slots], Precision::Fp32, optimizer, slots);
    Ok(Workload { scaled, warm: fill(&rows, n), batches, ..Workload::new(name, shape, config) })
}

/// `n` rows of the pool, uniform or by Zipf's law.
fn drawn(pool: &[u32], n: usize, alpha: Option<f64>, random: &mut Pcg64) -> anyhow::Result<Vec<u32>> {
    match alpha {
        Some(alpha) => zipf(pool, n, alpha, random),
        None => Ok(uniform(pool, n, random)),
    }
}

/// Only hits, far beyond the chip's caches: gather, forward, backward. With uniform rows and SGD only rows move; with Zipf's law and AdaGrad
/// a third of a batch's accesses are repeats, so that merging matters.
pub(super) fn hits(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    for (name, alpha, slot) in [
        ("hits-uniform", None, (Optimizer::sgd(LR), DIM)),
        ("hits-zipf", Some(1.05), (Optimizer::adagrad(LR), 2 * DIM)),
    ] {
        // At the goal's size, or at the size of one binding if the device has too little memory.
        let (wanted, binding) = (bench.resident().1, bench.binding());
        let whole = resident(bench, name, wanted, alpha, slot)?;
        match bench.measure(&whole) {
            Err(error) if wanted > binding && too_large(&error) => {
                let half = resident(bench, name, binding, alpha, slot)?;
                bench.measure(&half)?;
            }
            done => drop(done?),
        }
    }
    Ok(())
}

fn too_large(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Error::OutOfMemory { .. } | Error::TooLarge { .. }))
}

/// Optimisers compared: element-wise state in the slot doubles a row's bytes, and must not cost more than that.
pub(super) fn optimizers(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    for (name, optimizer) in [
        ("optimizer-sgd", Optimizer::sgd(LR)),
        ("optimizer-row-wise", Optimizer::row_wise_adagrad(LR)),
        ("optimizer-adagrad", Optimizer::adagrad(LR)),
    ] {
        // All have the same rows, as many as one binding holds with the widest state.
        let workload = resident(bench, name, bench.one_binding(), Some(1.05), (optimizer, 2 * DIM))?;
        bench.measure(&workload)?;
    }
    Ok(())
}

/// The cost of wgpu's runtime checks in the shaders: every kernel of a step with only hits, in both shader modes.
pub(super) fn trusted(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let slot = (Optimizer::adagrad(LR), 2 * DIM);
    let unchecked = bench.lab()?.with(&ContextOptions::default().shaders(Shaders::Trusted))?;
    let workload = resident(bench, "shaders-trusted", bench.one_binding(), Some(1.05), slot)?;
    bench.measure_on(&unchecked, &workload)?;
    bench.measure(&Workload { name: "shaders-checked".to_owned(), ..workload })?;
    Ok(())
}

/// The bodies that look up rows, side by side: a forward at full hits with each body that the device runs.
pub(super) fn lookups(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let slot = (Optimizer::sgd(LR), DIM);
    let workload = resident(bench, "lookup", bench.one_binding(), Some(1.05), slot)?;
    for body in LookupBody::ALL {
        let name = format!("lookup-{}", body.name());
        match bench.lab()?.with(&ContextOptions::default().lookup(body)) {
            Ok(lab) => {
                let workload = Workload { name, backward: false, ..workload.clone() };
                bench.measure_on(&lab, &workload)?;
            }
            Err(reason) => bench.run.leave_out(name, reason.to_string()),
        }
    }
    Ok(())
}

/// A row with a tenth of the accesses: its gradients are a tenth of all, and one writer updates it.
pub(super) fn skew(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    // The goal is for a million.
    let n = bench.size.of(5_000, 1_000_000);
    let slots = (n as u32 / 2).next_multiple_of(32);
    let rows = pool(slots, slots / 32);
    for (name, share) in [("skew-even", 0), ("skew-tenth", n / 10)] {
        let mut random = random(bench.seed, 2);
        let mut batch = || {
            let mut all = uniform(&rows, n, &mut random);
            all[..share].fill(rows[0]);
            shuffle(&mut all, &mut random);
            Batch::of(all, BAG)
        };
        let shape =
            format!("{n} indices, {share} of them to one row, the others uniform over {} rows x {DIM}", rows.len());
        let config = bench.config(&[slots], Precision::Fp32, Optimizer::sgd(LR), slots);
        let batches = (0..TURNS).map(|_| batch()).collect();
        bench.measure(&Workload { warm: fill(&rows, n), batches, ..Workload::new(name, shape, config) })?;
    }
    Ok(())
}

/// A thousand indices, whose time is that of launches, not of bytes.
pub(super) fn small(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let (n, slots) = (1000, 1 << 15);
    let resident = pool(slots, slots / 32);
    for (name, table) in [("small-hits", slots), ("small-misses", 8 * slots)] {
        let rows: Vec<u32> = if table == slots { resident.clone() } else { (0..table).collect() };
        let mut random = random(bench.seed, 3);
        let shape = format!("{n} indices uniform over {} rows x {DIM}, the cache filled once", rows.len());
        let config = bench.config(&[table], Precision::Int8, Optimizer::row_wise_adagrad(LR), slots);
        let batches = (0..TURNS).map(|_| Batch::of(uniform(&rows, n, &mut random), BAG)).collect();
        let warm = fill(&resident, 1 << 13);
        bench.measure(&Workload { warm, batches, ..Workload::new(name, shape, config) })?;
    }
    Ok(())
}

/// Batches that fill a cache before TBE's shape is measured.
const WARM: usize = 8;

pub(super) fn tbe(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    // B, T, E.
    let (batch_size, tables, rows): (u32, u32, u32) = bench.size.of((8, 8, 2_000), (512, 32, 100_000));
    let table: Vec<u32> = (0..rows).collect();
    for (alpha, precision) in
        [1.0, 1.15].into_iter().flat_map(|alpha| [(alpha, Precision::Fp32), (alpha, Precision::Int8)])
    {
        let mut random = random(bench.seed, 4);
        // TBE's 1.0 means uniform.
        let law = Some(alpha).filter(|&alpha| alpha != 1.0);
        let mut batch = || -> anyhow::Result<Batch> {
            let feature = || drawn(&table, (batch_size * BAG) as usize, law, &mut random);
            let features = std::iter::repeat_with(feature).take(tables as usize).collect::<anyhow::Result<_>>()?;
            Ok(Batch { features, bag: BAG })
        };
        let warm = (0..WARM).map(|_| batch()).collect::<anyhow::Result<_>>()?;
        let batches = (0..4 * TURNS).map(|_| batch()).collect::<anyhow::Result<_>>()?;
        let cache = (u64::from(rows) * u64::from(tables) / 5) as u32;
        let mut config = bench.config(&vec![rows; tables as usize], precision, Optimizer::sgd(LR), cache);
        config.placement = bench.mapped();
        let name = format!("tbe-{alpha}-{}", format!("{precision:?}").to_lowercase());
        let shape = format!(
            "B {batch_size}, T {tables}, D {DIM}, L {BAG}, E {rows}, alpha {alpha}, cache of a fifth of the rows, {WARM} batches before"
        );
        let scaled = (!bench.size.is_full()).then(|| "small".to_owned());
        bench.measure(&Workload { scaled, warm, batches, ..Workload::new(name, shape, config) })?;
    }
    Ok(())
}

pub(super) const TABLES: u32 = 10;
/// Batches with new rows.
const NEW: usize = 26;

/// NVIDIA's benchmark of TBE, with a fifth of the distinct rows missing: 4.77 ms with SGD, 15.0 ms with Adam on an H100.
pub(super) fn nvidia(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    // Lookups, rows of each table. NVIDIA's smaller setting, where its cached figures have 26.8 M rows: `full.rs` has those.
    let (lookups, rows): (u32, u32) = bench.size.of((10_480, 20_000), (1_048_570, 1_680_000));
    for (name, optimizer) in
        [("nvidia-row-wise", Optimizer::row_wise_adagrad(LR)), ("nvidia-element-wise", Optimizer::adagrad(LR))]
    {
        let workload = nvidia_shape(bench, name, (lookups, rows), optimizer)?;
        bench.measure(&workload)?;
    }
    Ok(())
}

/// NVIDIA's shape with `lookups` lookups in all and `rows` rows in each table.
pub(super) fn nvidia_shape(
    bench: &Bench<'_>,
    name: &str,
    (lookups, rows): (u32, u32),
    optimizer: Optimizer,
) -> anyhow::Result<Workload> {
    let mut random = random(bench.seed, 5);
    // Batches draw from the first half of a table; new rows come from the second half.
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
    let mut config = bench.config(&vec![rows; TABLES as usize], Precision::Int8, optimizer, slots);
    config.placement = bench.mapped();
    let shape = format!(
        "{TABLES} tables of {rows} rows x {DIM}, {lookups} lookups, alpha 1.05, {each} distinct rows, cache of {slots} rows, 0.8 of the rows \
         that the batches touch; a fifth of each batch's distinct rows is new"
    );
    Ok(Workload { warm, batches, ..Workload::new(name, shape, config) })
}

/// For each access, the number of its row among those that new rows replace: the fifth of the distinct rows that is used least.
fn leaving(known: &[u32]) -> Vec<Option<u32>> {
    let mut count = BTreeMap::<u32, u32>::new();
    known.iter().for_each(|&row| *count.entry(row).or_default() += 1);
    let mut by_use: Vec<(u32, u32)> = count.into_iter().map(|(row, n)| (n, row)).collect();
    by_use.sort_unstable();
    let fifth = by_use.len() / 5;
    let number: BTreeMap<u32, u32> = by_use[..fifth].iter().map(|&(_, row)| row).zip(0..).collect();
    known.iter().map(|row| number.get(row).copied()).collect()
}

fn many(leaving: &[Option<u32>]) -> u32 {
    leaving.iter().flatten().max().map_or(0, |last| last + 1)
}

/// `base` with the leaving rows replaced by rows of each table's second half, of which the longest unused come first.
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

/// Batches of `n` distinct rows: 95 % of a batch are the same rows in all batches, which come first; no other row comes twice.
pub(super) fn mostly_hits(bench: &Bench<'_>, (n, rows): (usize, u32), count: usize) -> (Vec<u32>, Vec<Batch>) {
    let misses = n / 20;
    let half = |rows: std::ops::Range<u32>, n| distinct(&rows.collect::<Vec<_>>(), n);
    let (hot, cold) = (half(0..rows / 2, n - misses), half(rows / 2..rows, count * misses));
    let mut random = random(bench.seed, 6);
    let mut batch = |cold: &[u32]| {
        let mut all = [&hot, cold].concat();
        shuffle(&mut all, &mut random);
        Batch::of(all, BAG)
    };
    let batches = cold.chunks_exact(misses).map(&mut batch).collect();
    (hot, batches)
}

/// Floats of a row in the scaling part, few enough that ten million rows fit one binding.
const NARROW: u32 = 32;

/// Steps over increasing numbers of distinct rows, all resident, in steps of a decade or half a decade.
pub(super) fn scaling(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    const SMALL: &[usize] = &[100, 300, 1_000, 3_000, 10_000, 30_000];
    const FULL: &[usize] = &[1_000, 10_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000];
    let counts = bench.size.of(SMALL, FULL);
    let most = counts.last().copied().unwrap_or(1) as u32;
    // All have the same cache, slightly larger, since sets do not fill evenly.
    let slots = (most + most / 8).next_multiple_of(32);
    let rows = pool(slots, slots / 32);
    let shape = format!("distinct indices over {} resident rows x {NARROW}, bags of {BAG}", rows.len());
    bench.run.describe("scaling", shape);
    let mut points = Vec::new();
    for &n in counts {
        if let Some(reason) = bench.deadline.over() {
            bench.run.leave_out(format!("time against work of {n} distinct rows"), reason);
            break;
        }
        let batch = Batch::of(distinct(&rows, n.min(rows.len())), BAG);
        let mut config = bench.config(&[slots], Precision::Fp32, Optimizer::sgd(LR), slots);
        config.dim = NARROW;
        let (warm, batches) = (vec![batch.clone()], vec![batch]);
        let workload = Workload { warm, batches, ..Workload::new("scaling", "", config) };
        let case = bench.case(&workload)?;
        let Some(step) = case.step() else { continue };
        let distinct = case.facts.distinct;
        let mut at = bench.run.at("scaling", &Setting::default().with("distinct", distinct));
        at.timed("forward", case.measured.phase("forward"));
        at.timed("backward", case.measured.phase("backward"));
        at.push("step", step, Unit::Seconds);
        at.push("a row", step / distinct, Unit::Seconds);
        at.push("dispatches", case.measured.dispatches() as f64, Unit::Count);
        points.push((distinct, step));
    }
    points.retain(|point| point.0 >= 0.99e5);
    bench.run.at("scaling", &Setting::default()).push("off a straight line", off_the_line(&points), Unit::Share);
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
