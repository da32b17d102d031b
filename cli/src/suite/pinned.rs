//! Hot rows pinned against no cache, in the shape of P3's Tables I to VI.

mod draw;
mod table;

pub(crate) use table::Pinned;

use hotrow::internals::layout::WAYS;
use hotrow::scars::{HotBatches, HotRows, Samples};
use hotrow::{Group, GroupConfig, Optimizer, Placement, Policy, Precision};

use super::cases::{DIM, LR, TURNS, config, is_mapped, mapped};
use super::goals::{Id, reach};
use super::lab::Lab;
use super::report::Report;
use super::shapes::{Batch, random};
use super::workload::Workload;
use draw::{Even, Law, Sample, TABLES};
use table::{Epoch, Kind, Step};

/// P3's sizes of the cache, in MB.
const CACHES: [u32; 4] = [128, 256, 512, 1024];
/// The one that P3 decided for.
const CHOSEN: u32 = 256;
/// P3's batches.
const BATCHES: [u32; 5] = [2048, 4096, 8192, 16384, 32768];
/// Where the size of the cache is varied: launches, and bytes.
const ENDS: [u32; 2] = [BATCHES[0], BATCHES[4]];
/// Rows of all tables together.
const ROWS: u32 = 8_000_000;
/// Samples of an epoch: the labelled ones of Criteo's Kaggle set.
const EPOCH: u64 = 45_840_617;

/// What all cases share.
struct Bench<'a> {
    lab: &'a Lab,
    law: Law,
    even: Even,
    /// What P3's sizes are divided by.
    by: u32,
    mixed: Vec<(u32, Vec<Batch>)>,
    evens: Vec<(u32, Vec<Batch>)>,
}

pub(crate) fn run(lab: &Lab, report: &mut Report) -> anyhow::Result<()> {
    let by = lab.size.pinned();
    let law = Law::new(ROWS / TABLES as u32 / by, slots(CHOSEN, by), 2.576);
    let even = Even::new(law, slots(CACHES[0], by));
    let mut random = random(lab.seed, 7);
    let mut mixed = |batch: u32| -> Vec<Batch> {
        let mut one = || (0..batch / by).map(|_| law.sample(&mut random)).collect::<Vec<Sample>>();
        (0..TURNS).map(|_| draw::batch(&one())).collect()
    };
    let mixed = BATCHES.map(|batch| (batch, mixed(batch))).into();
    let evens = ENDS
        .into_iter()
        .map(|batch| {
            let one = |_| even.batch((batch / by) as usize, &mut random);
            Ok((batch, (0..TURNS).map(one).collect::<anyhow::Result<_>>()?))
        })
        .collect::<anyhow::Result<_>>()?;
    let bench = Bench { lab, law, even, by, mixed, evens };
    let placement = mapped(lab);
    let mut found = Pinned {
        shape: format!(
            "{TABLES} tables of {} FP32 rows x {DIM}, {placement:?}, SGD; a sample looks up a row of each, half-normal: 99 % of the lookups go \
             to as many rows as {CHOSEN} MB hold; only pinned rows are cached",
            law.rows
        ),
        divided_by: by,
        samples_by_quarter: bench.quarters(),
        ..Pinned::default()
    };
    let mut hot = Samples::default();
    for cache in std::iter::once(0).chain(CACHES) {
        if lab.out_of_time() {
            report.left_out.push(format!("pinned: caches from {cache} MB on: out of time"));
            break;
        }
        match bench.cached(placement, cache, &mut hot) {
            Ok(steps) => found.steps.extend(steps),
            Err(error) => report.left_out.push(format!("pinned: a cache of {cache} MB: {error:#}")),
        }
    }
    if placement != Placement::Device && !lab.out_of_time() {
        for cache in [0, CHOSEN] {
            let mut group = bench.group(Placement::Device, cache)?;
            found.steps.extend(bench.mixed(&mut group, cache, &ENDS)?);
        }
    }
    found.epochs = BATCHES.into_iter().filter_map(|batch| epoch(&found.steps, batch, by, hot)).collect();
    report.wrong.extend(wrong(&found.steps));
    goals(lab, report, &found.steps);
    report.pinned = Some(found);
    Ok(())
}

/// Slots of a cache of `mb`.
fn slots(mb: u32, by: u32) -> u32 {
    let bytes = (u64::from(mb) << 20) / u64::from(by);
    (bytes / u64::from(4 * DIM)) as u32
}

impl Bench<'_> {
    fn config(&self, placement: Placement, cache: u32) -> GroupConfig {
        let (tables, slots) = (vec![self.law.rows; TABLES], slots(cache, self.by));
        let mut config = config(&tables, Precision::Fp32, Optimizer::sgd(LR), slots, self.lab.seed);
        config.placement = placement;
        config.policy = Policy::Static;
        config
    }

    /// A group whose hottest rows are pinned.
    fn group(&self, placement: Placement, cache: u32) -> anyhow::Result<Group> {
        self.lab.timeline.listen(false);
        let mut group = Group::new(&self.lab.timed, self.config(placement, cache))?;
        if cache > 0 {
            let ranks = Even::wanted(slots(cache, self.by)).min(self.law.rows);
            group.pin(&self.law.ranks(0..ranks).collect::<Vec<_>>(), WAYS)?;
        }
        Ok(group)
    }

    /// All that is measured with one size of the cache, 0 for none.
    fn cached(&self, placement: Placement, cache: u32, hot: &mut Samples) -> anyhow::Result<Vec<Step>> {
        let mut group = self.group(placement, cache)?;
        let mut steps = self.mixed(&mut group, cache, if cache == 0 { &BATCHES } else { &ENDS })?;
        if cache == CHOSEN {
            let pinned = HotRows::new(&group.pinned()?);
            for batch in BATCHES {
                for (kind, batches) in self.sorted_out(&pinned, batch, hot) {
                    steps.push(self.step(&mut group, kind, cache, batch, &batches)?);
                }
            }
        }
        if cache > 0 {
            self.lab.timeline.listen(false);
            group.pin(&self.even.pins(slots(cache, self.by)), WAYS)?;
        }
        for (batch, batches) in &self.evens {
            steps.push(self.step(&mut group, Kind::Even, cache, *batch, batches)?);
        }
        Ok(steps)
    }

    fn mixed(&self, group: &mut Group, cache: u32, sizes: &[u32]) -> anyhow::Result<Vec<Step>> {
        let wanted = self.mixed.iter().filter(|(batch, _)| sizes.contains(batch));
        wanted.map(|(batch, batches)| self.step(group, Kind::Mixed, cache, *batch, batches)).collect()
    }

    /// Full batches of either kind, as many as are measured in turn.
    fn sorted_out(&self, pinned: &HotRows, batch: u32, seen: &mut Samples) -> [(Kind, Vec<Batch>); 2] {
        let samples = (batch / self.by) as usize;
        let mut random = random(self.lab.seed, 8);
        let stream = std::iter::repeat_with(|| self.law.sample(&mut random));
        let mut batches =
            HotBatches::new(stream, samples, |sample| pinned.has_all(draw::linear(self.law.rows, sample)));
        let (mut hot, mut normal) = (Vec::new(), Vec::new());
        // Hardly any sample may be of one kind: what a thousand batches have is enough then.
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

    fn step(&self, group: &mut Group, kind: Kind, cache: u32, batch: u32, batches: &[Batch]) -> anyhow::Result<Step> {
        anyhow::ensure!(!batches.is_empty(), "wanted batches of kind {kind:?}, found none");
        let pinned_rows = group.pinned()?.len();
        let workload = Workload {
            name: "pinned".to_owned(),
            shape: String::new(),
            why: "P3's tables",
            warm_state: String::new(),
            scale: None,
            config: group.config().clone(),
            warm: Vec::new(),
            batches: batches.to_vec(),
            backward: true,
        };
        let case = workload.run_on(self.lab, group)?;
        let step = Step::of(&case, kind, (cache, slots(cache, self.by)), pinned_rows);
        Ok(Step { batch, samples: (batch / self.by) as usize, ..step })
    }

    /// P3 Figure 4: how many of 1024 samples use a row of each quarter of a cache of 512 MB, hottest quarter first.
    fn quarters(&self) -> [u32; 4] {
        let ranks = (slots(512, self.by) / TABLES as u32).min(self.law.rows);
        let quarter = |i: u32| HotRows::new(&self.law.ranks(ranks * i / 4..ranks * (i + 1) / 4).collect::<Vec<_>>());
        let mut random = random(self.lab.seed, 9);
        let samples: Vec<Sample> = (0..1024).map(|_| self.law.sample(&mut random)).collect();
        std::array::from_fn(|i| {
            let quarter = quarter(i as u32);
            let uses = |sample: &&Sample| draw::linear(self.law.rows, sample).any(|row| quarter.has(row));
            samples.iter().filter(uses).count() as u32
        })
    }
}

fn find(steps: &[Step], kind: Kind, cache: u32, batch: u32) -> Option<&Step> {
    // Those of the device's own memory come last.
    steps.iter().find(|step| (step.kind, step.cache_mb, step.batch) == (kind, cache, batch))
}

fn epoch(steps: &[Step], batch: u32, by: u32, hot: Samples) -> Option<Epoch> {
    let uncached = find(steps, Kind::Mixed, 0, batch)?;
    let [of_hot, of_normal] = [find(steps, Kind::Hot, CHOSEN, batch)?, find(steps, Kind::Normal, CHOSEN, batch)?];
    let (samples, each) = (EPOCH / u64::from(by), u64::from(batch / by));
    let hot_samples = (samples as f64 * hot.hot_share()).round() as u64;
    let [hot_batches, normal_batches, all] = [hot_samples, samples - hot_samples, samples].map(|n| n.div_ceil(each));
    let of =
        |step: &Step, n: u64| (step.step_seconds.map(|s| s * n as f64), (step.bytes_in + step.bytes_out) * n as f64);
    let (hot_part, normal_part, whole) = (of(of_hot, hot_batches), of(of_normal, normal_batches), of(uncached, all));
    Some(Epoch {
        batch,
        samples,
        hot_share: hot.hot_share(),
        hot_batches,
        normal_batches,
        uncached_seconds: whole.0,
        pinned_seconds: hot_part.0.zip(normal_part.0).map(|(a, b)| a + b),
        uncached_bytes: whole.1,
        pinned_bytes: hot_part.1 + normal_part.1,
    })
}

/// On any machine: a hot batch moves nothing, a normal one does, and the hit rate that is to be the same is.
fn wrong(steps: &[Step]) -> Vec<String> {
    let mut wrong = Vec::new();
    for step in steps {
        // A batch's twentieth, rounded down, misses; the same in every cache.
        let lookups = step.samples * TABLES;
        let even = if step.cache_mb == 0 { 0 } else { lookups - lookups / 20 };
        let bytes = step.bytes_in + step.bytes_out;
        let (wanted, right) = match step.kind {
            Kind::Hot => ("hits only and no bytes", bytes == 0.0 && step.hit_rate == 1.0),
            Kind::Normal => ("as many bytes in as out", step.bytes_in > 0.0 && step.bytes_in == step.bytes_out),
            Kind::Even => ("the hit rate given", (step.hit_rate - even as f64 / lookups as f64).abs() < 1e-9),
            Kind::Mixed => ("no hits without a cache", step.cache_mb > 0 || step.hit_rate == 0.0),
        };
        if !right {
            wrong.push(format!(
                "pinned, {:?}, {} MB, batch {}: wanted {wanted}, found a hit rate of {}, {} bytes in, {} out",
                step.kind, step.cache_mb, step.batch, step.hit_rate, step.bytes_in, step.bytes_out
            ));
        }
    }
    wrong
}

/// The slowest against the fastest of some times.
fn apart(seconds: &[f64]) -> Option<f64> {
    let (low, high) = (seconds.iter().copied().reduce(f64::min)?, seconds.iter().copied().reduce(f64::max)?);
    (seconds.len() > 1).then(|| high / low)
}

fn goals(lab: &Lab, report: &mut Report, steps: &[Step]) {
    let judges = lab.judges() && is_mapped(lab);
    let flat = ENDS.map(|batch| {
        let all = CACHES.iter().filter_map(|&cache| Some(find(steps, Kind::Even, cache, batch)?.forward?.median));
        apart(&all.collect::<Vec<_>>())
    });
    let worst = flat[0].zip(flat[1]).map(|(a, b)| a.max(b));
    let show =
        |values: [Option<f64>; 2]| values.map(|value| value.map_or_else(|| "-".to_owned(), |x| format!("{x:.2}")));
    let [small, large] = show(flat);
    reach(&mut report.goals, Id::PinnedFlat, worst, judges, format!("batch {} {small}, {} {large}", ENDS[0], ENDS[1]));
    let against = |of: fn(&Step) -> Option<f64>| {
        ENDS.map(|batch| {
            Some(of(find(steps, Kind::Even, 0, batch)?)? / of(find(steps, Kind::Even, CACHES[3], batch)?)?)
        })
    };
    let times = against(|step| step.step_seconds);
    let [small, _] = show(times);
    // No step is faster by more than this, were there nothing but the bus.
    let [_, most] = show(against(|step| Some(step.bytes_in + step.bytes_out)));
    let remark = format!("batch {}; {small} at {}; bytes {most}", ENDS[1], ENDS[0]);
    reach(&mut report.goals, Id::PinnedStep, times[1], judges, remark);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(kind: Kind, cache_mb: u32, hit_rate: f64, bytes: f64) -> Step {
        Step {
            kind,
            placement: "mapped".to_owned(),
            cache_mb,
            cache_rows: 0,
            pinned_rows: 0,
            batch: 2048,
            samples: 2000,
            hit_rate,
            distinct: 0.0,
            forward: None,
            backward_seconds: None,
            optimizer_seconds: None,
            step_seconds: Some(0.5),
            bytes_in: bytes,
            bytes_out: bytes,
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
        assert_eq!(found.pinned_seconds, Some(0.5 * f64::from(16_788 + 5_596)));
        assert_eq!(found.pinned_bytes, 20.0 * 5_596.0);
        assert_eq!(found.uncached_seconds, Some(0.5 * 22_384.0));
        assert!(epoch(&steps, 4096, 2, Samples::default()).is_none());
    }

    #[test]
    fn slowest_against_fastest() {
        assert_eq!(apart(&[2.0, 1.0, 1.5]), Some(2.0));
        assert_eq!(apart(&[2.0]), None);
    }
}
