//! `--verify`: the plan carried out with the real kernels, and what their counters say beside what was predicted.

mod expectation;
mod judge;
mod order;
mod report;

use super::expect::form;
use super::fit::Pinned;
use super::sizes::Shape;
use crate::failure::Failure;
use crate::options::Backend;
use crate::progress::Progress;
use expectation::Expectation;
use hotrow::scars::Skew;
use hotrow::{Context, Counters, CpuGroup, Embedding, Group, Placement};
use judge::{BOUND, Judge, TOLERANCE};
use serde::Serialize;

pub(super) use expectation::enough;
pub(super) use judge::Measure;
pub(super) use order::Order;

/// What is carried out.
pub(super) struct Job<'a> {
    pub(super) shape: Shape,
    pub(super) cache_rows: u32,
    /// Ways of a set that may be pinned.
    pub(super) share: u32,
    /// Rows to pin, hottest first.
    pub(super) rows: &'a [u32],
    pub(super) skew: &'a Skew,
    /// Which rows the prediction takes for pinned: these.
    pub(super) pinned: &'a Pinned,
    pub(super) backend: Backend,
    pub(super) seed: u32,
}

/// One order of the lookups. Its fields are part of the schema of `--json`.
#[derive(Debug, Serialize)]
pub(super) struct Run {
    /// `shuffled`, `samples shuffled` or `real`.
    pub(super) order: &'static str,
    pub(super) backend: String,
    pub(super) lookups: u64,
    pub(super) batches: u64,
    /// All lookups of a trace, each once.
    pub(super) whole_epoch: bool,
    /// `binomial` or `hypergeometric`, of the largest batch.
    pub(super) form: &'static str,
    /// Bytes of a record of the group that ran.
    pub(super) record: u64,
    pub(super) pinned_rows: u64,
    pub(super) measures: Vec<Measure>,
    /// Distinct rows counted in a batch, for each one predicted.
    pub(super) locality: f64,
    /// A measure is neither right nor wrong: chance alone may move it further than can be allowed.
    pub(super) too_short: bool,
    /// Every measure is within what is allowed.
    pub(super) within: bool,
}

/// What runs a plan.
enum Device {
    Cpu,
    Gpu(Context),
}

impl Device {
    fn of(backend: Backend) -> Result<Self, Failure> {
        Ok(backend.open("verifying")?.map_or(Self::Cpu, Self::Gpu))
    }

    fn name(&self) -> String {
        match self {
            Self::Cpu => "CPU backend".to_owned(),
            Self::Gpu(context) => context.caps().name.clone(),
        }
    }
}

/// A group of the plan.
struct Engine {
    group: Box<dyn Embedding>,
}

impl Engine {
    fn new(device: &Device, job: &Job<'_>) -> Result<Self, Failure> {
        let mut config = job.shape.config(job.cache_rows);
        // Where the records live changes no counter.
        config.placement = Placement::Device;
        config.seed = job.seed;
        let group: Box<dyn Embedding> = match device {
            Device::Cpu => Box::new(CpuGroup::new(config)?),
            Device::Gpu(context) => Box::new(Group::new(context, config)?),
        };
        Ok(Self { group })
    }

    fn counters(&mut self) -> anyhow::Result<Counters> {
        Ok(self.group.counters()?.into_iter().sum())
    }

    /// Forward and, in training, backward of every batch, then a flush. Returns what that counted.
    fn play(&mut self, job: &Job<'_>, order: &Order, progress: &Progress) -> anyhow::Result<Counters> {
        let before = self.counters()?;
        let dim = job.shape.dim as usize;
        let mut gradients = Vec::new();
        for (ids, offsets) in order.batches() {
            self.group.forward(ids, &offsets, None)?;
            if !job.shape.inference {
                let floats = (offsets.len() - 1) * dim;
                if gradients.len() < floats {
                    // A gradient that moves rows, and overflows none.
                    gradients.resize(floats, 1e-3);
                }
                self.group.backward(&gradients[..floats])?;
            }
            progress.advance(ids.len() as u64);
        }
        if !job.shape.inference {
            self.group.flush()?;
        }
        Ok(self.counters()? - before)
    }
}

/// Plays each order of lookups on a new group.
pub(super) fn run(job: &Job<'_>, orders: &[Order]) -> Result<Vec<Run>, Failure> {
    let all: usize = orders.iter().map(|order| order.ids.len()).sum();
    let progress = Progress::new("verify", all as u64);
    let device = Device::of(job.backend)?;
    orders.iter().map(|order| play(&device, job, order, &progress)).collect()
}

/// An error unless the order that the prediction is for proved it.
pub(super) fn proved(runs: &[Run]) -> Result<(), Failure> {
    let Some(run) = runs.iter().find(|run| run.is_judged() && !run.within) else { return Ok(()) };
    if !run.fails() {
        let remedy = if run.whole_epoch { "take a longer trace" } else { "give more --verify-batches" };
        return Err(anyhow::anyhow!(
            "verify: wanted a run that chance alone moves by less than is allowed, found one too short to tell: nothing was \
             proved; {remedy}, or a smaller --budget, so that more is missed"
        )
        .into());
    }
    Err(anyhow::anyhow!(
        "verify: wanted counters within what is allowed of the prediction, found the deviations above; does --backend cpu find \
         them too?"
    )
    .into())
}

fn play(device: &Device, job: &Job<'_>, order: &Order, progress: &Progress) -> Result<Run, Failure> {
    let mut engine = Engine::new(device, job)?;
    let record = engine.group.layout().stride();
    let left_out = engine.group.pin(job.rows, job.share)?;
    if !left_out.is_empty() {
        let found = left_out.len();
        return Err(anyhow::anyhow!(
            "verify: wanted a way for each row of the plan, found none for {found}; please report this"
        )
        .into());
    }
    let counted = engine.play(job, order, progress)?;
    let lookups = order.ids.len() as u64;
    if counted.accesses != lookups {
        let found = counted.accesses;
        return Err(anyhow::anyhow!("verify: wanted {lookups} lookups counted, found {found}").into());
    }
    let (expected, whole_epoch) = expected(job, order);
    let judge = Judge { bound: if whole_epoch { TOLERANCE } else { BOUND } };
    let measures = compare(judge, &expected, &counted, record, job.shape.inference);
    let sizes = order.sizes();
    Ok(Run {
        order: order.name,
        backend: device.name(),
        lookups,
        batches: sizes.values().sum(),
        whole_epoch,
        form: form(job.skew, sizes.keys().next_back().copied().unwrap_or(0)),
        record,
        pinned_rows: job.rows.len() as u64,
        locality: counted.unique as f64 / expected.batches.distinct.mean,
        too_short: measures.iter().any(|measure| measure.too_short),
        within: measures.iter().all(|measure| measure.within),
        measures,
    })
}

/// What the run is expected to count, and whether it is all of a trace.
fn expected(job: &Job<'_>, order: &Order) -> (Expectation, bool) {
    let (sizes, lookups) = (order.sizes(), order.ids.len() as u64);
    let expected = Expectation::new(job.skew, job.pinned, &sizes);
    let Some(all) = job.skew.accesses() else { return (expected, false) };
    // Batches of whole samples have too many sizes for each pair of them: how far chance goes hangs on the mean.
    let batches: u64 = sizes.values().sum();
    let alike = if order.name == order::SHUFFLED { sizes } else { [(lookups / batches.max(1), batches)].into() };
    (expected.drawn_once(job.skew, job.pinned, &alike, all), all == lookups)
}

/// Each figure, predicted and counted.
fn compare(judge: Judge, expected: &Expectation, counted: &Counters, record: u64, inference: bool) -> Vec<Measure> {
    let Expectation { batches, whole } = expected;
    let record = record as f64;
    let mut measures = vec![
        judge.measure("distinct rows", batches.distinct, 1.0, counted.unique as f64),
        judge.measure("missing distinct rows", batches.misses, 1.0, counted.unique_misses as f64),
        judge.measure("hits", batches.hits, 1.0, counted.hits as f64),
        judge.measure("bytes read", batches.misses, record, counted.bytes_read as f64),
    ];
    if !inference {
        // Each missing row is updated once a batch; each pinned one that was touched goes back once, in the flush.
        let written = batches.misses + whole.touched;
        measures.push(judge.measure("bytes written", written, record, counted.bytes_written as f64));
    }
    measures
}

#[cfg(test)]
mod tests {
    use super::super::fit::Cache;
    use super::*;
    use crate::names::{OptimizerName, PrecisionName};
    use rand::seq::SliceRandom;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64;

    const ROWS: u32 = 500;

    /// Lookups in random order, row r as likely as 1/(r + 3).
    fn lookups() -> Vec<u32> {
        let mut random = Pcg64::seed_from_u64(3);
        let mut lookups: Vec<u32> = (0..ROWS).flat_map(|row| vec![row; (20_000 / (row + 3)) as usize]).collect();
        lookups.shuffle(&mut random);
        lookups.truncate(lookups.len() - random.random_range(1..9));
        lookups
    }

    fn measures(skew: &Skew, rows: &[u32], pinned: &Pinned, lookups: &[u32], inference: bool) -> Run {
        let (precision, optimizer) = (PrecisionName::Int8, OptimizerName::Sgd);
        let shape = Shape { rows: ROWS, dim: 2, precision, optimizer, inference };
        let job = Job { shape, cache_rows: 64, share: 32, rows, skew, pinned, backend: Backend::Cpu, seed: 1 };
        run(&job, &[Order::shuffled(lookups.to_vec(), 300, 3)]).unwrap().remove(0)
    }

    #[test]
    fn a_right_prediction_is_within_and_a_wrong_one_is_not() {
        let lookups = lookups();
        let mut counts = vec![0; ROWS as usize];
        lookups.iter().for_each(|&row| counts[row as usize] += 1);
        let skew = Skew::from_counts(counts).unwrap();
        // Row r is the r-th hottest, within equal counts.
        let ranked: Vec<u32> = (0..ROWS).collect();
        let cache = Cache::known(&skew, &ranked, ROWS, 64, 32);
        assert_eq!(cache.rows.len(), 64);
        for inference in [false, true] {
            let run = measures(&skew, &cache.rows, &cache.pinned, &lookups, inference);
            assert!(run.within && run.pinned_rows == 64 && run.batches > 100, "{run:?}");
            assert_eq!(run.measures.len(), if inference { 4 } else { 5 });
            let records = (run.measures[1].counted * run.record as f64, run.measures[1].predicted * run.record as f64);
            assert_eq!(records, (run.measures[3].counted, run.measures[3].predicted), "a record a missing row");
            let wrong = |run: &Run, what: &str| {
                let of = run.measures.iter().find(|measure| measure.what == what).unwrap();
                assert!(!run.within && !of.within, "{what}: {run:?}");
            };
            // Rows said to be pinned that are not, a row fewer than said, another distribution, lookups with locality.
            wrong(&measures(&skew, &[], &cache.pinned, &lookups, inference), "bytes read");
            wrong(&measures(&skew, &cache.rows[1..], &cache.pinned, &lookups, inference), "hits");
            let flat = Skew::uniform(ROWS.into()).unwrap();
            let expected = Cache::expected(&flat, ROWS, 64, 32).pinned;
            wrong(&measures(&flat, &cache.rows, &expected, &lookups, inference), "distinct rows");
            let mut sorted = lookups.clone();
            sorted.sort_unstable();
            wrong(&measures(&skew, &cache.rows, &cache.pinned, &sorted, inference), "distinct rows");
        }
    }
}
