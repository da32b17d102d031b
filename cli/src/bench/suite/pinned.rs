//! Pinned hot rows against no cache, in the shape of SCARS's Tables I to VI.

use hotrow::internals::layout::WAYS;
use hotrow::scars::{HotBatches, HotRows, Samples};
use hotrow::{Group, GroupConfig, Optimizer, Placement, Policy, Precision};

use super::bench::{Bench, DIM};
use super::cases::{LR, TURNS};
use super::draw::{self, Even, Law, Sample, TABLES};
use super::shapes::{Batch, random};
use super::workload::{Case, Workload};
use crate::report::run::Run;
use crate::report::units::apart;
use crate::report::{Record, Select, Setting, Unit};

/// SCARS's cache sizes, in MB.
const CACHES: [u32; 4] = [128, 256, 512, 1024];
/// The cache size that SCARS chose.
const CHOSEN: u32 = 256;
/// SCARS's batch sizes.
const BATCHES: [u32; 5] = [2048, 4096, 8192, 16384, 32768];
/// The batch sizes at which the cache size is varied: one bound by launches, one by bytes.
const ENDS: [u32; 2] = [BATCHES[0], BATCHES[4]];
/// Rows of all tables together.
const ROWS: u32 = 8_000_000;
/// Samples of an epoch: the labelled samples of Criteo's Kaggle set.
const EPOCH: u64 = 45_840_617;

/// The tables and samples of all cases.
struct Shapes {
    seed: u32,
    law: Law,
    even: Even,
    by: u32,
    mixed: Vec<(u32, Vec<Batch>)>,
    evens: Vec<(u32, Vec<Batch>)>,
}

pub(super) fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    bench.lab()?;
    // The divisor of SCARS's caches, batches and tables.
    let by = bench.size.of(512, 1);
    let law = Law::new(ROWS / TABLES as u32 / by, slots(CHOSEN, by), 2.576);
    let even = Even::new(law, slots(CACHES[0], by));
    let mut random = random(bench.seed, 7);
    let mut mixed = |batch: u32| -> Vec<Batch> {
        let mut one = || (0..batch / by).map(|_| law.sample(&mut random)).collect::<Vec<Sample>>();
        (0..TURNS).map(|_| draw::batch(&one())).collect()
    };
    let mixed = BATCHES.map(|batch| (batch, mixed(batch))).into();
    let mut evens = Vec::new();
    for batch in ENDS {
        let one = |_| even.batch((batch / by) as usize, &mut random);
        evens.push((batch, (0..TURNS).map(one).collect::<anyhow::Result<_>>()?));
    }
    let shapes = Shapes { seed: bench.seed, law, even, by, mixed, evens };
    let placement = bench.mapped();
    bench.run.describe(
        "pinned",
        format!(
            "{TABLES} tables of {} FP32 rows x {DIM}, SGD; a sample looks up a row of each, half-normal: 99 % of the lookups go to as many rows as \
             {CHOSEN} MB hold; only pinned rows are cached; caches, batches and rows are SCARS's divided by {by}",
            law.rows
        ),
    );
    let mut hot = Samples::default();
    for cache in std::iter::once(0).chain(CACHES) {
        let name = format!("pinned, a cache of {cache} MB");
        if let Some(reason) = bench.deadline.over() {
            bench.run.leave_out(name, reason);
        } else if let Err(error) = shapes.cached(bench, (placement, cache), &mut hot) {
            bench.run.leave_out(name, format!("{error:#}"));
        }
    }
    if placement != Placement::Device && bench.deadline.over().is_none() {
        for cache in [0, CHOSEN] {
            let mut group = shapes.group(bench, (Placement::Device, cache))?;
            shapes.mixed(bench, &mut group, (Placement::Device, cache), &ENDS)?;
        }
    }
    epochs(&mut bench.run, by, hot);
    compare(&mut bench.run, placement);
    let wrong = wrong(&bench.run, by);
    bench.run.wrong.extend(wrong);
    Ok(())
}

/// The slots of a cache of `mb` MB.
fn slots(mb: u32, by: u32) -> u32 {
    let bytes = (u64::from(mb) << 20) / u64::from(by);
    (bytes / u64::from(4 * DIM)) as u32
}

/// The placement of the table, and the MB of its cache.
type Place = (Placement, u32);

impl Shapes {
    fn config(&self, bench: &Bench<'_>, (placement, cache): Place) -> GroupConfig {
        let slots = slots(cache, self.by);
        let mut config = bench.config(&[self.law.rows; TABLES], Precision::Fp32, Optimizer::sgd(LR), slots);
        (config.placement, config.policy) = (placement, Policy::Static);
        config
    }

    fn group(&self, bench: &Bench<'_>, place: Place) -> anyhow::Result<Group> {
        bench.lab()?.timeline.listen(false);
        let mut group = Group::new(&bench.lab()?.timed, self.config(bench, place))?;
        if place.1 > 0 {
            let ranks = Even::wanted(slots(place.1, self.by)).min(self.law.rows);
            group.pin(&self.law.ranks(0..ranks).collect::<Vec<_>>(), WAYS)?;
        }
        Ok(group)
    }

    /// Measures one cache size; 0 is no cache.
    fn cached(&self, bench: &mut Bench<'_>, place: Place, hot: &mut Samples) -> anyhow::Result<()> {
        let (mut group, cache) = (self.group(bench, place)?, place.1);
        self.mixed(bench, &mut group, place, if cache == 0 { &BATCHES } else { &ENDS })?;
        if cache == CHOSEN {
            let pinned = HotRows::new(&group.pinned()?);
            for batch in BATCHES {
                for (kind, batches) in self.sorted_out(&pinned, batch, hot) {
                    self.step(bench, &mut group, kind, place, (batch, &batches))?;
                }
            }
        }
        if cache > 0 {
            bench.lab()?.timeline.listen(false);
            group.pin(&self.even.pins(slots(cache, self.by)), WAYS)?;
        }
        self.evens
            .iter()
            .try_for_each(|(batch, batches)| self.step(bench, &mut group, "even", place, (*batch, batches)))
    }

    /// Measures unsorted batches of these sizes.
    fn mixed(&self, bench: &mut Bench<'_>, group: &mut Group, place: Place, sizes: &[u32]) -> anyhow::Result<()> {
        let mut these = self.mixed.iter().filter(|(batch, _)| sizes.contains(batch));
        these.try_for_each(|(batch, batches)| self.step(bench, group, "mixed", place, (*batch, batches)))
    }

    /// Full batches of hot and of normal samples, one for each turn.
    fn sorted_out(&self, pinned: &HotRows, batch: u32, seen: &mut Samples) -> [(&'static str, Vec<Batch>); 2] {
        let samples = (batch / self.by) as usize;
        let mut random = random(self.seed, 8);
        let stream = std::iter::repeat_with(|| self.law.sample(&mut random));
        let mut batches =
            HotBatches::new(stream, samples, |sample| pinned.has_all(draw::linear(self.law.rows, sample)));
        let (mut hot, mut normal) = (Vec::new(), Vec::new());
        // If one kind is rare, a thousand batches are searched at most.
        for packed in batches.by_ref().take(1000) {
            let kind = if packed.hot { &mut hot } else { &mut normal };
            if kind.len() < TURNS {
                kind.push(draw::batch(&packed.samples));
            }
            if hot.len() == TURNS && normal.len() == TURNS {
                break;
            }
        }
        let counted = batches.samples();
        seen.hot += counted.hot;
        seen.normal += counted.normal;
        [("hot", hot), ("normal", normal)]
    }

    /// Measures a step in SCARS's parts: its update is our optimiser's share of backward, its backward the rest.
    fn step(
        &self,
        bench: &mut Bench<'_>,
        group: &mut Group,
        kind: &str,
        place: Place,
        (batch, batches): (u32, &[Batch]),
    ) -> anyhow::Result<()> {
        anyhow::ensure!(!batches.is_empty(), "wanted batches of kind {kind}, found none");
        let pinned = group.pinned()?.len();
        let workload = Workload { batches: batches.to_vec(), ..Workload::new("pinned", "", self.config(bench, place)) };
        let case = workload.run_on(bench.lab()?, group)?;
        let backward = case.seconds("backward");
        let optimizer = backward.zip(update_share(&case)).map(|(whole, share)| whole * share);
        let setting = Setting::default().with("batches", kind).with("placement", placed(place.0));
        let mut at = bench.run.at("pinned", &setting.with("cache MB", place.1).with("batch", batch));
        at.timed("forward", case.measured.phase("forward"));
        at.push("backward", backward.map(|whole| whole - optimizer.unwrap_or(0.0)), Unit::Seconds);
        at.push("optimizer", optimizer, Unit::Seconds);
        at.push("step", case.step(), Unit::Seconds);
        at.push("hit rate", case.facts.hit_rate(), Unit::Share);
        at.push("bytes in", case.facts.table_bytes(false), Unit::Bytes);
        at.push("bytes out", case.facts.table_bytes(true), Unit::Bytes);
        at.push("pinned rows", pinned as f64, Unit::Count);
        at.push("distinct", case.facts.distinct, Unit::Count);
        Ok(())
    }
}

/// The share of the update in the time of backward's kernels. These are timed in rounds of their own.
fn update_share(case: &Case) -> Option<f64> {
    let backward = case.kernels.iter().filter(|kernel| kernel.phase == "backward");
    let all = backward.clone().map(|kernel| Some(kernel.times?.median)).sum::<Option<f64>>()?;
    let mut update = backward.filter(|kernel| kernel.stage == "update");
    Some(update.next()?.times?.median / all)
}

fn placed(placement: Placement) -> String {
    format!("{placement:?}").to_lowercase()
}

/// A figure of a step. The first record counts: those of a table in device memory come last.
fn of_step(run: &Run, what: &str, kind: &str, cache: u32, batch: u32) -> Option<f64> {
    run.value(what, "pinned", &format!("batches={kind}; cache MB={cache}; batch={batch}"))
}

/// Records the time of an epoch for each batch size, from the number of batches of each kind and their times.
fn epochs(run: &mut Run, by: u32, hot: Samples) {
    let mut smallest = None;
    run.at("epoch", &Setting::default()).push("samples that are hot", hot.hot_share(), Unit::Share);
    let samples = EPOCH / u64::from(by);
    let hot_samples = (samples as f64 * hot.hot_share()).round() as u64;
    for batch in BATCHES {
        let count = |samples: u64| samples.div_ceil(u64::from(batch / by)) as f64;
        let [hot, normal, all] = [hot_samples, samples - hot_samples, samples].map(count);
        let of = |what: &str| {
            let plain = of_step(run, what, "mixed", 0, batch)? * all;
            let [hot_step, normal_step] = ["hot", "normal"].map(|kind| of_step(run, what, kind, CHOSEN, batch));
            Some([plain, hot_step? * hot + normal_step? * normal])
        };
        let Some(([read, pinned_read], [written, pinned_written])) = of("bytes in").zip(of("bytes out")) else {
            continue;
        };
        let (uncached, pinned) = of("step").map(|[plain, pinned]| (plain, pinned)).unzip();
        smallest = smallest.or(pinned);
        let times = |a: Option<f64>| a.zip(pinned).map(|(a, b)| a / b);
        let mut at = run.at("epoch", &Setting::default().with("batch", batch));
        at.push("hot batches", hot, Unit::Count);
        at.push("normal batches", normal, Unit::Count);
        at.push("no cache", uncached, Unit::Seconds);
        at.push("256 MB pinned", pinned, Unit::Seconds);
        at.push("faster", times(uncached), Unit::Times);
        at.push("against smallest batch", times(smallest), Unit::Times);
        at.push("bytes saved", 1.0 - (pinned_read + pinned_written) / (read + written), Unit::Share);
    }
}

/// Records how much forward depends on the cache size, and how much faster a step is with the largest cache than without. The bound of that
/// is the ratio of the bytes over the bus.
fn compare(run: &mut Run, placement: Placement) {
    for batch in ENDS {
        let even = |what: &str, cache| of_step(run, what, "even", cache, batch);
        let forward: Vec<f64> = CACHES.iter().filter_map(|&cache| even("forward", cache)).collect();
        let bytes = |cache| Some(even("bytes in", cache)? + even("bytes out", cache)?);
        let step = even("step", 0).zip(even("step", CACHES[3])).map(|(a, b)| a / b);
        let bytes = bytes(0).zip(bytes(CACHES[3])).map(|(a, b)| a / b);
        let mut at = run.at("pinned", &Setting::default().with("placement", placed(placement)).with("batch", batch));
        at.push("slowest against fastest cache", apart(&forward), Unit::Times);
        at.push("no cache against 1024 MB", step, Unit::Times);
        at.push("bytes without cache against 1024 MB", bytes, Unit::Times);
    }
}

/// Failures on any machine: a hot batch that moves rows, a normal batch that moves other bytes in than out, and a wrong hit rate.
fn wrong(run: &Run, by: u32) -> Vec<String> {
    let mut wrong = Vec::new();
    let rates = Select { what: "hit rate", shape: "pinned", setting: "" };
    for Record { setting, value: hit_rate, .. } in run.select(rates) {
        let bytes = |what: &str| {
            let found = run.records.iter().find(|record| record.what == what && record.setting == *setting);
            found.map_or(f64::NAN, |record| record.value)
        };
        let number = |name: &str| setting.number(name).unwrap_or(f64::NAN);
        let (read, written) = (bytes("bytes in"), bytes("bytes out"));
        // In every cache a twentieth of a batch, rounded down, misses.
        let lookups = (number("batch") as u32 / by) as usize * TABLES;
        let even = if number("cache MB") == 0.0 { 0 } else { lookups - lookups / 20 };
        let (wanted, right) = match setting.get("batches").map(ToString::to_string).unwrap_or_default().as_str() {
            "hot" => ("hits only and no bytes", read + written == 0.0 && *hit_rate == 1.0),
            "normal" => ("as many bytes in as out", read > 0.0 && read == written),
            "even" => ("the hit rate given", (hit_rate - even as f64 / lookups as f64).abs() < 1e-9),
            _ => ("no hits without a cache", number("cache MB") > 0.0 || *hit_rate == 0.0),
        };
        if !right {
            wrong.push(format!(
                "pinned: wanted {wanted}, found {setting}: hit rate {hit_rate}, {read} B in, {written} B out"
            ));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds a step of 2,048 samples, divided by 2.
    fn push(run: &mut Run, kind: &str, cache_mb: u32, hit_rate: f64, bytes: f64) {
        let setting = Setting::default().with("batches", kind).with("cache MB", cache_mb).with("batch", 2048);
        let mut at = run.at("pinned", &setting);
        at.push("step", 0.5, Unit::Seconds);
        at.push("hit rate", hit_rate, Unit::Share);
        at.push("bytes in", bytes, Unit::Bytes);
        at.push("bytes out", bytes, Unit::Bytes);
    }

    fn recorded(steps: &[(&str, u32, f64, f64)]) -> Run {
        let mut run = Run::new("bench suite", Some("abc"), 0, "small");
        steps.iter().for_each(|&(kind, cache, hit_rate, bytes)| push(&mut run, kind, cache, hit_rate, bytes));
        run
    }

    #[test]
    fn what_cannot_be_is_noticed() {
        // A twentieth of 1,024 x 26 lookups, rounded down, misses.
        let even = f64::from(26_624 - 1331) / 26_624.0;
        let right = [
            ("mixed", 0, 0.0, 900.0),
            ("mixed", 256, 0.99, 9.0),
            ("hot", 256, 1.0, 0.0),
            ("normal", 256, 0.96, 90.0),
            ("even", 0, 0.0, 90.0),
            ("even", 128, even, 90.0),
        ];
        assert_eq!(wrong(&recorded(&right), 2), Vec::<String>::new());
        for other in [
            ("hot", 256, 1.0, 1.0),
            ("hot", 256, 0.999, 0.0),
            ("normal", 256, 0.9, 0.0),
            ("even", 1024, 0.97, 9.0),
            ("mixed", 0, 0.1, 9.0),
        ] {
            assert_eq!(wrong(&recorded(&[other]), 2).len(), 1, "{other:?}");
        }
    }

    #[test]
    fn an_epoch_is_its_batches() {
        let mut run = recorded(&[("mixed", 0, 0.0, 100.0), ("hot", 256, 1.0, 0.0), ("normal", 256, 0.96, 10.0)]);
        epochs(&mut run, 2, Samples { hot: 3, normal: 1 });
        let found = |what: &str| run.value(what, "epoch", "batch=2048");
        assert_eq!((found("hot batches"), found("normal batches")), (Some(16_788.0), Some(5_596.0)));
        assert_eq!(found("no cache"), Some(0.5 * 22_384.0));
        assert_eq!(found("256 MB pinned"), Some(0.5 * f64::from(16_788 + 5_596)));
        assert_eq!(found("bytes saved"), Some(1.0 - 20.0 * 5_596.0 / (200.0 * 22_384.0)));
        assert_eq!(run.value("faster", "epoch", "batch=4096"), None);
    }
}
