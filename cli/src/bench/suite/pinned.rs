//! Hot rows pinned against no cache, in the shape of SCARS's Tables I to VI.

use hotrow::internals::layout::WAYS;
use hotrow::scars::{HotBatches, HotRows, Samples};
use hotrow::{Group, GroupConfig, Optimizer, Placement, Policy, Precision};

use super::Bench;
use super::cases::{DIM, LR, TURNS, config, mapped};
use super::draw::{self, Even, Law, Sample, TABLES};
use super::shapes::{Batch, random};
use super::workload::Workload;
use crate::lab::Lab;
use crate::report::{Setting, Unit};

/// SCARS's sizes of the cache, in MB.
const CACHES: [u32; 4] = [128, 256, 512, 1024];
/// The one that SCARS decided for.
const CHOSEN: u32 = 256;
/// SCARS's batches.
const BATCHES: [u32; 5] = [2048, 4096, 8192, 16384, 32768];
/// Where the size of the cache is varied: launches, and bytes.
const ENDS: [u32; 2] = [BATCHES[0], BATCHES[4]];
/// Rows of all tables together.
const ROWS: u32 = 8_000_000;
/// Samples of an epoch: the labelled ones of Criteo's Kaggle set.
const EPOCH: u64 = 45_840_617;

/// Which samples a batch has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// As they come.
    Mixed,
    /// All rows pinned.
    Hot,
    /// Each with a row that is not.
    Normal,
    /// 95 % of the lookups pinned, whatever the cache.
    Even,
}

/// A mean step, as far as steps are compared.
#[derive(Clone, Copy, Debug)]
struct Step {
    kind: Kind,
    /// 0: none.
    cache_mb: u32,
    batch: u32,
    samples: usize,
    hit_rate: f64,
    forward: Option<f64>,
    seconds: Option<f64>,
    /// Read from the table, and written to it.
    bytes: [f64; 2],
}

/// What all cases share.
struct Shapes<'a> {
    lab: &'a Lab,
    seed: u32,
    law: Law,
    even: Even,
    /// By what SCARS's sizes are divided.
    by: u32,
    mixed: Vec<(u32, Vec<Batch>)>,
    evens: Vec<(u32, Vec<Batch>)>,
}

pub(super) fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let by = bench.size.pinned();
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
    let shapes = Shapes { lab: bench.lab, seed: bench.seed, law, even, by, mixed, evens };
    let placement = mapped(bench.lab);
    bench.run.describe(
        "pinned",
        format!(
            "{TABLES} tables of {} FP32 rows x {DIM}, SGD; a sample looks up a row of each, half-normal: 99 % of the lookups go to as many rows as \
             {CHOSEN} MB hold; only pinned rows are cached; caches, batches and rows are SCARS's divided by {by}",
            law.rows
        ),
    );
    for (quarter, users) in (1u32..).zip(shapes.quarters()) {
        let setting = Setting::default().with("quarter", quarter);
        bench.run.push("of 1024 samples that use it", "pinned", &setting, f64::from(users), Unit::Count);
    }
    let (mut hot, mut steps) = (Samples::default(), Vec::new());
    for cache in std::iter::once(0).chain(CACHES) {
        let name = format!("pinned, a cache of {cache} MB");
        if let Some(reason) = bench.deadline.over() {
            bench.run.leave_out(name, reason);
        } else if let Err(error) = shapes.cached(bench, &mut steps, (placement, cache), &mut hot) {
            bench.run.leave_out(name, format!("{error:#}"));
        }
    }
    if placement != Placement::Device && bench.deadline.over().is_none() {
        for cache in [0, CHOSEN] {
            let mut group = shapes.group(Placement::Device, cache)?;
            shapes.mixed(bench, &mut steps, &mut group, (Placement::Device, cache), &ENDS)?;
        }
    }
    epochs(bench, &steps, by, hot);
    compare(bench, &steps, placement);
    bench.run.wrong.extend(wrong(&steps));
    Ok(())
}

/// Slots of a cache of `mb`.
fn slots(mb: u32, by: u32) -> u32 {
    let bytes = (u64::from(mb) << 20) / u64::from(by);
    (bytes / u64::from(4 * DIM)) as u32
}

/// Where the table lives, and the cache in MB.
type Place = (Placement, u32);

impl Shapes<'_> {
    fn config(&self, (placement, cache): Place) -> GroupConfig {
        let (tables, slots) = (vec![self.law.rows; TABLES], slots(cache, self.by));
        let mut config = config(&tables, Precision::Fp32, Optimizer::sgd(LR), slots, self.seed);
        config.placement = placement;
        config.policy = Policy::Static;
        config
    }

    /// A group whose hottest rows are pinned.
    fn group(&self, placement: Placement, cache: u32) -> anyhow::Result<Group> {
        self.lab.timeline.listen(false);
        let mut group = Group::new(&self.lab.timed, self.config((placement, cache)))?;
        if cache > 0 {
            let ranks = Even::wanted(slots(cache, self.by)).min(self.law.rows);
            group.pin(&self.law.ranks(0..ranks).collect::<Vec<_>>(), WAYS)?;
        }
        Ok(group)
    }

    /// All that is measured with one size of the cache, 0 for none.
    fn cached(
        &self,
        bench: &mut Bench<'_>,
        steps: &mut Vec<Step>,
        (placement, cache): Place,
        hot: &mut Samples,
    ) -> anyhow::Result<()> {
        let mut group = self.group(placement, cache)?;
        let place = (placement, cache);
        self.mixed(bench, steps, &mut group, place, if cache == 0 { &BATCHES } else { &ENDS })?;
        if cache == CHOSEN {
            let pinned = HotRows::new(&group.pinned()?);
            for batch in BATCHES {
                for (kind, batches) in self.sorted_out(&pinned, batch, hot) {
                    steps.push(self.step(bench, &mut group, kind, place, (batch, &batches))?);
                }
            }
        }
        if cache > 0 {
            self.lab.timeline.listen(false);
            group.pin(&self.even.pins(slots(cache, self.by)), WAYS)?;
        }
        for (batch, batches) in &self.evens {
            steps.push(self.step(bench, &mut group, Kind::Even, place, (*batch, batches))?);
        }
        Ok(())
    }

    fn mixed(
        &self,
        bench: &mut Bench<'_>,
        steps: &mut Vec<Step>,
        group: &mut Group,
        place: Place,
        sizes: &[u32],
    ) -> anyhow::Result<()> {
        for (batch, batches) in self.mixed.iter().filter(|(batch, _)| sizes.contains(batch)) {
            steps.push(self.step(bench, group, Kind::Mixed, place, (*batch, batches))?);
        }
        Ok(())
    }

    /// Full batches of either kind, as many as are measured in turn.
    fn sorted_out(&self, pinned: &HotRows, batch: u32, seen: &mut Samples) -> [(Kind, Vec<Batch>); 2] {
        let samples = (batch / self.by) as usize;
        let mut random = random(self.seed, 8);
        let stream = std::iter::repeat_with(|| self.law.sample(&mut random));
        let mut batches =
            HotBatches::new(stream, samples, |sample| pinned.has_all(draw::linear(self.law.rows, sample)));
        let (mut hot, mut normal) = (Vec::new(), Vec::new());
        // Hardly any sample may be of one kind: a thousand batches are enough then.
        for packed in batches.by_ref().take(1000) {
            let kind = if packed.kind == hotrow::scars::Kind::Hot { &mut hot } else { &mut normal };
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
        [(Kind::Hot, hot), (Kind::Normal, normal)]
    }

    /// Measures a step, cut up as SCARS does: the update is the optimiser's, the rest of our backward theirs.
    fn step(
        &self,
        bench: &mut Bench<'_>,
        group: &mut Group,
        kind: Kind,
        (placement, cache_mb): Place,
        (batch, batches): (u32, &[Batch]),
    ) -> anyhow::Result<Step> {
        anyhow::ensure!(!batches.is_empty(), "wanted batches of kind {kind:?}, found none");
        let pinned = group.pinned()?.len();
        let workload =
            Workload { batches: batches.to_vec(), ..Workload::new("pinned", "", self.config((placement, cache_mb))) };
        let case = workload.run_on(self.lab, group)?;
        let setting = Setting::default()
            .with("batches", format!("{kind:?}").to_lowercase())
            .with("placement", format!("{placement:?}").to_lowercase())
            .with("cache MB", cache_mb)
            .with("batch", batch);
        let bytes = [false, true].map(|backward| case.facts.table_bytes(backward));
        let backward = case.seconds("backward");
        let optimizer = backward.zip(case.update_share()).map(|(whole, share)| whole * share);
        let run = &mut bench.run;
        if let Some(forward) = case.times("forward") {
            run.timed("forward", "pinned", &setting, forward);
        }
        for (what, value, unit) in [
            ("backward", backward.map(|whole| whole - optimizer.unwrap_or(0.0)), Unit::Seconds),
            ("optimizer", optimizer, Unit::Seconds),
            ("step", case.step(), Unit::Seconds),
            ("hit rate", Some(case.hit_rate()), Unit::Share),
            ("bytes in", Some(bytes[0]), Unit::Bytes),
            ("bytes out", Some(bytes[1]), Unit::Bytes),
            ("pinned rows", Some(pinned as f64), Unit::Count),
            ("distinct", Some(case.facts.distinct), Unit::Count),
        ] {
            run.push_some(what, "pinned", &setting, value, unit);
        }
        let (hit_rate, samples) = (case.hit_rate(), (batch / self.by) as usize);
        let (forward, seconds) = (case.seconds("forward"), case.step());
        Ok(Step { kind, cache_mb, batch, samples, hit_rate, forward, seconds, bytes })
    }

    /// SCARS's Figure 4: how many of 1024 samples use a row of each quarter of a cache of 512 MB, hottest quarter first.
    fn quarters(&self) -> [u32; 4] {
        let ranks = (slots(512, self.by) / TABLES as u32).min(self.law.rows);
        let quarter = |i: u32| HotRows::new(&self.law.ranks(ranks * i / 4..ranks * (i + 1) / 4).collect::<Vec<_>>());
        let mut random = random(self.seed, 9);
        let samples: Vec<Sample> = (0..1024).map(|_| self.law.sample(&mut random)).collect();
        std::array::from_fn(|i| {
            let quarter = quarter(i as u32);
            let uses = |sample: &&Sample| draw::linear(self.law.rows, sample).any(|row| quarter.has(row));
            samples.iter().filter(uses).count() as u32
        })
    }
}

/// Steps on the device alone come last.
fn find(steps: &[Step], kind: Kind, cache: u32, batch: u32) -> Option<&Step> {
    steps.iter().find(|step| (step.kind, step.cache_mb, step.batch) == (kind, cache, batch))
}

/// An epoch.
#[derive(Debug, PartialEq)]
struct Epoch {
    hot_batches: u64,
    normal_batches: u64,
    /// Seconds without a cache, and with pinned rows.
    seconds: [Option<f64>; 2],
    /// Bytes likewise.
    bytes: [f64; 2],
}

/// Out of how many batches of each kind it has and what one takes.
fn epoch(steps: &[Step], batch: u32, by: u32, hot: Samples) -> Option<Epoch> {
    let uncached = find(steps, Kind::Mixed, 0, batch)?;
    let [of_hot, of_normal] = [find(steps, Kind::Hot, CHOSEN, batch)?, find(steps, Kind::Normal, CHOSEN, batch)?];
    let (samples, each) = (EPOCH / u64::from(by), u64::from(batch / by));
    let hot_samples = (samples as f64 * hot.hot_share()).round() as u64;
    let [hot_batches, normal_batches, all] = [hot_samples, samples - hot_samples, samples].map(|n| n.div_ceil(each));
    let seconds = |step: &Step, n: u64| step.seconds.map(|seconds| seconds * n as f64);
    let bytes = |step: &Step, n: u64| step.bytes.iter().sum::<f64>() * n as f64;
    let pinned = seconds(of_hot, hot_batches).zip(seconds(of_normal, normal_batches)).map(|(a, b)| a + b);
    Some(Epoch {
        hot_batches,
        normal_batches,
        seconds: [seconds(uncached, all), pinned],
        bytes: [bytes(uncached, all), bytes(of_hot, hot_batches) + bytes(of_normal, normal_batches)],
    })
}

fn epochs(bench: &mut Bench<'_>, steps: &[Step], by: u32, hot: Samples) {
    let mut smallest = None;
    bench.run.push("samples that are hot", "epoch", &Setting::default(), hot.hot_share(), Unit::Share);
    for batch in BATCHES {
        let Some(epoch) = epoch(steps, batch, by, hot) else { continue };
        let setting = Setting::default().with("batch", batch);
        let [uncached, pinned] = epoch.seconds;
        smallest = smallest.or(pinned);
        let times = |a: Option<f64>| a.zip(pinned).map(|(a, b)| a / b);
        for (what, value, unit) in [
            ("hot batches", Some(epoch.hot_batches as f64), Unit::Count),
            ("normal batches", Some(epoch.normal_batches as f64), Unit::Count),
            ("no cache", uncached, Unit::Seconds),
            ("256 MB pinned", pinned, Unit::Seconds),
            ("faster", times(uncached), Unit::Times),
            ("against smallest batch", times(smallest), Unit::Times),
            ("bytes saved", Some(1.0 - epoch.bytes[1] / epoch.bytes[0]), Unit::Share),
        ] {
            bench.run.push_some(what, "epoch", &setting, value, unit);
        }
    }
}

/// How flat forward is in the size of the cache, and how much faster a step is with the largest than without; no step is faster by more
/// than the bytes are fewer, were there nothing but the bus.
fn compare(bench: &mut Bench<'_>, steps: &[Step], placement: Placement) {
    for batch in ENDS {
        let setting =
            Setting::default().with("placement", format!("{placement:?}").to_lowercase()).with("batch", batch);
        let even = |cache| find(steps, Kind::Even, cache, batch);
        let forward = CACHES.iter().filter_map(|&cache| even(cache)?.forward).collect::<Vec<_>>();
        let ratio = |of: fn(&Step) -> Option<f64>| Some(of(even(0)?)? / of(even(CACHES[3])?)?);
        let mut push = |what: &str, value| bench.run.push_some(what, "pinned", &setting, value, Unit::Times);
        push("slowest against fastest cache", apart(&forward));
        push("no cache against 1024 MB", ratio(|step| step.seconds));
        push("bytes without cache against 1024 MB", ratio(|step| Some(step.bytes.iter().sum())));
    }
}

/// On any machine: a hot batch moves nothing, a normal one does, and the hit rate that is to be the same is.
fn wrong(steps: &[Step]) -> Vec<String> {
    let mut wrong = Vec::new();
    for step in steps {
        // A batch's twentieth, rounded down, misses; the same in every cache.
        let lookups = step.samples * TABLES;
        let even = if step.cache_mb == 0 { 0 } else { lookups - lookups / 20 };
        let [read, written] = step.bytes;
        let (wanted, right) = match step.kind {
            Kind::Hot => ("hits only and no bytes", read + written == 0.0 && step.hit_rate == 1.0),
            Kind::Normal => ("as many bytes in as out", read > 0.0 && read == written),
            Kind::Even => ("the hit rate given", (step.hit_rate - even as f64 / lookups as f64).abs() < 1e-9),
            Kind::Mixed => ("no hits without a cache", step.cache_mb > 0 || step.hit_rate == 0.0),
        };
        if !right {
            wrong.push(format!("pinned: wanted {wanted}, found {step:?}"));
        }
    }
    wrong
}

/// The slowest against the fastest of some times.
pub(crate) fn apart(seconds: &[f64]) -> Option<f64> {
    let (low, high) = (seconds.iter().copied().reduce(f64::min)?, seconds.iter().copied().reduce(f64::max)?);
    (seconds.len() > 1).then(|| high / low)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(kind: Kind, cache_mb: u32, hit_rate: f64, bytes: f64) -> Step {
        Step {
            kind,
            cache_mb,
            batch: 2048,
            samples: 2000,
            hit_rate,
            forward: None,
            seconds: Some(0.5),
            bytes: [bytes; 2],
        }
    }

    #[test]
    fn what_cannot_be_is_noticed() {
        let right = [
            step(Kind::Mixed, 0, 0.0, 900.0),
            step(Kind::Mixed, 256, 0.99, 9.0),
            step(Kind::Hot, 256, 1.0, 0.0),
            step(Kind::Normal, 256, 0.96, 90.0),
            step(Kind::Even, 0, 0.0, 90.0),
            step(Kind::Even, 128, 0.95, 90.0),
        ];
        assert_eq!(wrong(&right), Vec::<String>::new());
        for other in [
            step(Kind::Hot, 256, 1.0, 1.0),
            step(Kind::Hot, 256, 0.999, 0.0),
            step(Kind::Normal, 256, 0.9, 0.0),
            step(Kind::Even, 1024, 0.97, 9.0),
            step(Kind::Mixed, 0, 0.1, 9.0),
        ] {
            assert_eq!(wrong(std::slice::from_ref(&other)).len(), 1, "{other:?}");
        }
    }

    #[test]
    fn an_epoch_is_its_batches() {
        let steps =
            [step(Kind::Mixed, 0, 0.0, 100.0), step(Kind::Hot, 256, 1.0, 0.0), step(Kind::Normal, 256, 0.96, 10.0)];
        let found = epoch(&steps, 2048, 2, Samples { hot: 3, normal: 1 }).unwrap();
        assert_eq!((found.hot_batches, found.normal_batches), (16_788, 5_596));
        assert_eq!(found.seconds, [Some(0.5 * 22_384.0), Some(0.5 * f64::from(16_788 + 5_596))]);
        assert_eq!(found.bytes[1], 20.0 * 5_596.0);
        assert!(epoch(&steps, 4096, 2, Samples::default()).is_none());
    }

    #[test]
    fn slowest_against_fastest() {
        assert_eq!(apart(&[2.0, 1.0, 1.5]), Some(2.0));
        assert_eq!(apart(&[2.0]), None);
    }
}
