//! `--verify`: the plan carried out with the real kernels, and their counters beside the prediction.

mod order;
mod report;

use super::report::form;
use crate::failure::Failure;
use crate::options::Backend;
use crate::progress::Progress;
use anyhow::anyhow;
use hotrow::scars::sets::{Expected, Forecast, Judge, Judgement, PinnedRows, PlannedGroup};
use hotrow::scars::{Draws, Skew};
use hotrow::{Context, Counters, CpuGroup, Embedding, Group, Placement};
use serde::Serialize;

pub(super) use order::Order;

/// A plan to be carried out.
pub(super) struct Job<'a> {
    pub(super) group: PlannedGroup,
    pub(super) cache_rows: u32,
    /// Ways of a set that may be pinned.
    pub(super) pinned_ways: u32,
    /// Rows to pin, hottest first.
    pub(super) rows: &'a [u32],
    pub(super) skew: &'a Skew,
    /// The same rows, as the prediction has them.
    pub(super) pinned: &'a PinnedRows,
    pub(super) backend: Backend,
    pub(super) seed: u32,
}

/// One order of the lookups. Its fields are part of the schema of `--json`.
#[derive(Debug, Serialize)]
pub(super) struct Run {
    /// `shuffled`, `samples shuffled` or `real`.
    order: &'static str,
    backend: String,
    lookups: u64,
    batches: u64,
    /// All lookups of a trace, each once.
    whole_epoch: bool,
    /// `binomial` or `hypergeometric`, of the largest batch.
    form: &'static str,
    /// Bytes of a record of the group that ran.
    record: u64,
    pinned_rows: u64,
    measures: Vec<Measure>,
    /// Distinct rows counted in a batch, for each one predicted.
    locality: f64,
    /// A measure is neither right nor wrong: chance alone may move it further than can be allowed.
    too_short: bool,
    /// Every measure is within the allowed deviation.
    within: bool,
}

/// A count of a run.
#[derive(Debug, Serialize)]
struct Measure {
    what: &'static str,
    #[serde(flatten, with = "JudgementFields")]
    judged: Judgement,
}

#[derive(Serialize)]
#[serde(remote = "Judgement")]
struct JudgementFields {
    predicted: f64,
    counted: f64,
    deviation_percent: f64,
    allowed_percent: f64,
    too_short: bool,
    within: bool,
}

/// Plays each order of lookups on a new group.
pub(super) fn run(job: &Job<'_>, orders: &[Order]) -> Result<Vec<Run>, Failure> {
    let all: usize = orders.iter().map(|order| order.ids.len()).sum();
    let progress = Progress::new("verify", all as u64);
    let context = job.backend.open("verifying")?;
    orders.iter().map(|order| Ok(play(context.as_ref(), job, order, &progress)?)).collect()
}

/// An error unless the order that the prediction is for proved it.
pub(super) fn proved(runs: &[Run]) -> Result<(), Failure> {
    let Some(run) = runs.iter().find(|run| run.is_judged() && !run.within) else { return Ok(()) };
    if run.fails() {
        return Err(anyhow!(
            "verify: wanted counters within the allowed deviation of the prediction, found the deviations above; does --backend cpu \
             find them too?"
        )
        .into());
    }
    let remedy = if run.whole_epoch { "take a longer trace" } else { "give more --verify-batches" };
    Err(anyhow!(
        "verify: wanted a run that chance alone moves by less than is allowed, found one too short to tell: nothing was \
         proved; {remedy}, or a smaller --budget, so that more is missed"
    )
    .into())
}

/// A new group of the plan; `None` for the CPU.
fn group(context: Option<&Context>, job: &Job<'_>) -> Result<Box<dyn Embedding>, hotrow::Error> {
    let mut config = job.group.config(job.cache_rows);
    // The place of the records changes no counter.
    config.placement = Placement::Device;
    config.seed = job.seed;
    Ok(match context {
        None => Box::new(CpuGroup::new(config)?),
        Some(context) => Box::new(Group::new(context, config)?),
    })
}

fn play(context: Option<&Context>, job: &Job<'_>, order: &Order, progress: &Progress) -> anyhow::Result<Run> {
    let mut group = group(context, job)?;
    let record = group.layout().stride();
    let left_out = group.pin(job.rows, job.pinned_ways)?.len();
    anyhow::ensure!(
        left_out == 0,
        "verify: wanted a way for each row of the plan, found none for {left_out}; please report this"
    );
    let counted = count(&mut *group, job, order, progress)?;
    let lookups = order.ids.len() as u64;
    anyhow::ensure!(
        counted.accesses == lookups,
        "verify: wanted {lookups} lookups counted, found {}",
        counted.accesses
    );
    let (expected, whole_epoch) = expected(job, order);
    let judge = if whole_epoch { Judge::WHOLE_EPOCH } else { Judge::PART };
    let measures = compare(judge, job, &expected, &counted, record);
    let sizes = order.sizes();
    let largest = sizes.keys().next_back().copied().unwrap_or(0);
    Ok(Run {
        order: order.name,
        backend: context.map_or_else(|| "CPU backend".to_owned(), |context| context.caps().name.clone()),
        lookups,
        batches: sizes.values().sum(),
        whole_epoch,
        form: form(Draws::of_batch(job.skew, largest)),
        record,
        pinned_rows: job.rows.len() as u64,
        locality: counted.unique as f64 / expected.distinct.mean,
        too_short: measures.iter().any(|measure| measure.judged.too_short),
        within: measures.iter().all(|measure| measure.judged.within),
        measures,
    })
}

/// Forward and, in training, backward of every batch, then a flush. Returns what that counted.
fn count(group: &mut dyn Embedding, job: &Job<'_>, order: &Order, progress: &Progress) -> anyhow::Result<Counters> {
    let before: Counters = group.counters()?.into_iter().sum();
    let mut gradients = Vec::new();
    for (ids, offsets) in order.batches() {
        group.forward(ids, &offsets, None)?;
        if job.group.training {
            let floats = (offsets.len() - 1) * job.group.dim as usize;
            if gradients.len() < floats {
                // A gradient that moves rows, and overflows none.
                gradients.resize(floats, 1e-3);
            }
            group.backward(&gradients[..floats])?;
        }
        progress.advance(ids.len() as u64);
    }
    if job.group.training {
        group.flush()?;
    }
    let after: Counters = group.counters()?.into_iter().sum();
    Ok(after - before)
}

/// What the run's batches are expected to count, and whether the run is all of a trace.
fn expected(job: &Job<'_>, order: &Order) -> (Forecast, bool) {
    let (sizes, lookups) = (order.sizes(), order.ids.len() as u64);
    let expected = Forecast::batches(job.skew, job.pinned, sizes.clone());
    let Some(all) = job.skew.accesses() else { return (expected, false) };
    // Batches of whole samples have too many sizes for each pair of them. The mean decides how far chance goes.
    let batches: u64 = sizes.values().sum();
    let alike = if order.name == order::SHUFFLED { sizes } else { [(lookups / batches.max(1), batches)].into() };
    (expected.drawn_once(job.skew, job.pinned, &alike, all), all == lookups)
}

/// Each measure, predicted and counted.
fn compare(judge: Judge, job: &Job<'_>, expected: &Forecast, counted: &Counters, record: u64) -> Vec<Measure> {
    let record = record as f64;
    let measure = |what, expected: Expected, units, counted: u64| {
        let judged = judge.judge(expected, units, counted as f64);
        Measure { what, judged }
    };
    let mut measures = vec![
        measure("distinct rows", expected.distinct, 1.0, counted.unique),
        measure("missing distinct rows", expected.misses, 1.0, counted.unique_misses),
        measure("hits", expected.hits, 1.0, counted.hits),
        measure("bytes read", expected.misses, record, counted.bytes_read),
    ];
    if job.group.training {
        // Each missing row is updated once a batch; each pinned one that was touched goes back once, in the flush.
        let flushed = Forecast::batch(job.skew, job.pinned, counted.accesses).touched;
        measures.push(measure("bytes written", expected.misses + flushed, record, counted.bytes_written));
    }
    measures
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotrow::scars::sets::PinnedCache;
    use hotrow::{Optimizer, Precision};
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

    fn measures(skew: &Skew, rows: &[u32], pinned: &PinnedRows, lookups: &[u32], training: bool) -> Run {
        let (precision, optimizer) = (Precision::Int8, Optimizer::sgd(0.01));
        let group = PlannedGroup { rows: ROWS, dim: 2, precision, optimizer, training, binding: 1 << 30 };
        let job = Job { group, cache_rows: 64, pinned_ways: 32, rows, skew, pinned, backend: Backend::Cpu, seed: 1 };
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
        let cache = PinnedCache::known(&skew, &ranked, ROWS, 64, 32);
        assert_eq!(cache.rows.len(), 64);
        for training in [false, true] {
            let run = measures(&skew, &cache.rows, &cache.pinned, &lookups, training);
            assert!(run.within && run.pinned_rows == 64 && run.batches > 100, "{run:?}");
            assert_eq!(run.measures.len(), if training { 5 } else { 4 });
            let records = (
                run.measures[1].judged.counted * run.record as f64,
                run.measures[1].judged.predicted * run.record as f64,
            );
            assert_eq!(
                records,
                (run.measures[3].judged.counted, run.measures[3].judged.predicted),
                "a record a missing row"
            );
            let wrong = |run: &Run, what: &str| {
                let of = run.measures.iter().find(|measure| measure.what == what).unwrap();
                assert!(!run.within && !of.judged.within, "{what}: {run:?}");
            };
            // Rows said to be pinned that are not, a row fewer than said, another distribution, lookups with locality.
            wrong(&measures(&skew, &[], &cache.pinned, &lookups, training), "bytes read");
            wrong(&measures(&skew, &cache.rows[1..], &cache.pinned, &lookups, training), "hits");
            let flat = Skew::uniform(ROWS.into()).unwrap();
            let expected = PinnedCache::expected(&flat, ROWS, 64, 32).pinned;
            wrong(&measures(&flat, &cache.rows, &expected, &lookups, training), "distinct rows");
            let mut sorted = lookups.clone();
            sorted.sort_unstable();
            wrong(&measures(&skew, &cache.rows, &cache.pinned, &sorted, training), "distinct rows");
        }
    }
}
