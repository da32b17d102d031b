//! `--verify`: runs the plan with the real kernels and compares their counters with the prediction.

use super::input::Samples;
use anyhow::anyhow;
use hotrow::{Bags, Context, Counters, CpuGroup, Embedding, Group, GroupConfig, Mode, Placement};
use hotrow_plan::scars::{Expected, Forecast, Judgement, Pinned, Skew};
use hotrow_report::failure::Failure;
use hotrow_report::object::{self, Field, Object, fields};
use hotrow_report::options::Backend;
use hotrow_report::progress::Progress;
use rand::Rng;
use rand::seq::SliceRandom;
use std::collections::BTreeMap;

pub(super) struct Job<'a> {
    pub(super) config: GroupConfig,
    pub(super) training: bool,
    /// Ways of a set that may be pinned.
    pub(super) pinned_ways: u32,
    pub(super) skew: &'a Skew,
    pub(super) pinned: &'a Pinned,
    pub(super) backend: Backend,
}

/// The result of a run with one order of the lookups.
#[derive(Debug)]
pub(super) struct Run {
    order: &'static str,
    /// Whether the run had all lookups of a trace, each once.
    whole_epoch: bool,
    measures: Vec<Measure>,
    /// Part of the schema of `--json`.
    pub(super) json: Object,
}

/// The name of a counter, with its count and prediction.
type Measure = (&'static str, Judgement);

/// The form of the expected distinct rows of a batch.
pub(super) fn form(skew: &Skew, lookups: u64) -> &'static str {
    if skew.out_of_epoch(lookups) { "hypergeometric" } else { "binomial" }
}

impl Run {
    /// `played` describes the run. `locality` is the number of distinct rows counted in a batch for each one predicted.
    fn new(order: &'static str, whole_epoch: bool, played: Object, measures: Vec<Measure>, locality: f64) -> Self {
        let list = measures.iter().map(|(what, one)| {
            let judged = fields!(one; predicted, counted, deviation_percent, allowed_percent, too_short, within);
            Object::default().with("what", *what).and(judged)
        });
        let json = Object::default().with("order", order).and(played).with("measures", list.collect::<Field>());
        let json = json
            .with("locality", locality)
            // The run is too short to judge: chance alone may move the counter further than is allowed.
            .with("too_short", measures.iter().any(|(_, one)| one.too_short))
            .with("within", measures.iter().all(|(_, one)| one.within));
        Self { order, whole_epoch, measures, json }
    }

    /// Whether the prediction holds; `None` for an order that it does not predict.
    fn holds(&self) -> Option<Verdict> {
        let is_wrong = self.measures.iter().any(|(_, one)| !one.within && !one.too_short);
        let is_short = self.measures.iter().any(|(_, one)| one.too_short);
        (self.order == SHUFFLED).then_some(match (is_wrong, is_short) {
            (true, _) => Verdict::Fails,
            (false, true) => Verdict::TooShort,
            (false, false) => Verdict::Holds,
        })
    }

    pub(super) fn text(&self) -> String {
        let verdict = match self.holds() {
            None => "not judged: the prediction is for shuffled lookups",
            Some(Verdict::Fails) => "the prediction does not hold",
            Some(Verdict::TooShort) => "too short to tell",
            Some(Verdict::Holds) => "the prediction holds",
        };
        let played = self.json.clone().plain().table("verified");
        format!("{played}\n\n{}\n{verdict}", object::table(self.json.list("measures")))
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    Holds,
    Fails,
    /// The run is too short: chance alone may move a counter further than is allowed.
    TooShort,
}

/// Runs each order of lookups on a new group.
pub(super) fn run(job: &Job<'_>, orders: &[Order]) -> Result<Vec<Run>, Failure> {
    let progress = Progress::new("verify", orders.iter().map(Order::lookups).sum());
    let context = job.backend.open("verifying")?;
    orders.iter().map(|order| Ok(play(context.as_ref(), job, order, &progress)?)).collect()
}

/// Returns an error unless the run with shuffled lookups confirms the prediction.
pub(super) fn proved(runs: &[Run]) -> Result<(), Failure> {
    let wrong = runs.iter().find_map(|run| Some((run, run.holds().filter(|&verdict| verdict != Verdict::Holds)?)));
    let Some((run, verdict)) = wrong else { return Ok(()) };
    if verdict == Verdict::Fails {
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

/// Runs an order on a new group, without a context on the CPU.
fn play(context: Option<&Context>, job: &Job<'_>, order: &Order, progress: &Progress) -> anyhow::Result<Run> {
    // The placement of the records changes no counter.
    let config = job.config.clone().with_placement(Placement::Device);
    let mut group: Box<dyn Embedding> = match context {
        None => Box::new(CpuGroup::new(config)?),
        Some(context) => Box::new(Group::new(context, config)?),
    };
    let record = group.layout().stride();
    let left_out = group.pin(&job.pinned.rows, job.pinned_ways)?.len();
    anyhow::ensure!(
        left_out == 0,
        "verify: wanted a way for each row of the plan, found none for {left_out}; please report this"
    );
    let counted = count(&mut *group, job, order, progress)?;
    let (lookups, found) = (order.lookups(), counted.accesses);
    anyhow::ensure!(found == lookups, "verify: wanted {lookups} lookups counted, found {found}");
    let (expected, whole_epoch) = expected(job, order);
    let sizes = order.sizes();
    let largest = sizes.keys().next_back().copied().unwrap_or(0);
    let backend = context.map_or_else(|| "CPU backend".to_owned(), |context| context.caps().name.clone());
    let played = Object::default()
        .with("backend", backend)
        .with("lookups", lookups)
        .with("batches", sizes.values().sum::<u64>())
        .with("whole_epoch", whole_epoch)
        // The form for the largest batch.
        .with("form", form(job.skew, largest))
        // Bytes of a record of the group that ran.
        .with("record", record)
        .with("pinned_rows", job.pinned.rows.len());
    let measures = compare(job, &expected, &counted, record, whole_epoch);
    Ok(Run::new(order.name, whole_epoch, played, measures, counted.unique as f64 / expected.distinct.mean))
}

/// Runs forward and, in training, backward of every batch, then a flush. Returns the counts.
fn count(group: &mut dyn Embedding, job: &Job<'_>, order: &Order, progress: &Progress) -> anyhow::Result<Counters> {
    let before: Counters = group.counters()?.into_iter().sum();
    let mut gradients = Vec::new();
    for (ids, offsets) in &order.batches {
        group.forward(Bags::new(ids, offsets), Mode::Train)?;
        if job.training {
            let floats = (offsets.len() - 1) * job.config.dim as usize;
            if gradients.len() < floats {
                // A gradient that moves rows without an overflow.
                gradients.resize(floats, 1e-3);
            }
            group.backward(&gradients[..floats])?;
        } else {
            group.discard_pending();
        }
        progress.advance(ids.len() as u64);
    }
    if job.training {
        group.flush()?;
    }
    let after: Counters = group.counters()?.into_iter().sum();
    Ok(after - before)
}

/// The expected counts of the run, and whether the run is a whole epoch of a trace.
fn expected(job: &Job<'_>, order: &Order) -> (Forecast, bool) {
    let (sizes, lookups) = (order.sizes(), order.lookups());
    let expected = Forecast::batches(job.skew, job.pinned, sizes.clone());
    let Some(all) = job.skew.accesses() else { return (expected, false) };
    // Batches of whole samples have too many sizes to treat each pair of sizes, so their mean size decides the effect of chance.
    let batches: u64 = sizes.values().sum();
    let alike = if order.name == SHUFFLED { sizes } else { [(lookups / batches.max(1), batches)].into() };
    (expected.drawn_once(job.skew, job.pinned, &alike, all), all == lookups)
}

fn compare(job: &Job<'_>, expected: &Forecast, counted: &Counters, record: u64, whole_epoch: bool) -> Vec<Measure> {
    let record = record as f64;
    let measure =
        |what, expected: Expected, units, counted: u64| (what, expected.judge(units, counted as f64, whole_epoch));
    let mut measures = vec![
        measure("distinct rows", expected.distinct, 1.0, counted.unique),
        measure("missing distinct rows", expected.misses, 1.0, counted.unique_misses),
        measure("hits", expected.hits, 1.0, counted.hits),
        measure("bytes read", expected.misses, record, counted.bytes_read),
    ];
    if job.training {
        // Each missing row is updated once in a batch; each pinned row that was touched is written back once, by the flush.
        let flushed = Forecast::batch(job.skew, job.pinned, counted.accesses).touched;
        measures.push(measure("bytes written", expected.misses + flushed, record, counted.bytes_written));
    }
    measures
}

/// Lookups in an order.
pub(super) struct Order {
    /// `shuffled`, `samples shuffled` or `real`.
    name: &'static str,
    /// The lookups of each batch, and the offsets of its bags.
    batches: Vec<(Vec<u32>, Vec<u32>)>,
}

/// The order that the prediction is for.
const SHUFFLED: &str = "shuffled";
const SAMPLES: &str = "samples shuffled";
const REAL: &str = "real";

impl Order {
    /// Independent lookups, as the prediction assumes, in bags of one size. The last bag of a batch may be smaller.
    pub(super) fn shuffled(ids: &[u32], batch: usize, bag: usize) -> Self {
        let cut = |ids: &[u32]| {
            let starts = (0..ids.len()).step_by(bag).chain([ids.len()]);
            (ids.to_vec(), starts.map(|start| start as u32).collect())
        };
        Self { name: SHUFFLED, batches: ids.chunks(batch.max(1)).map(cut).collect() }
    }

    /// The bags of a trace in batches of `batch` samples, at most `batches` of them: in random order if any sample has several lookups, and
    /// in real order.
    pub(super) fn of_samples(trace: &Samples, batch: usize, batches: usize, random: &mut impl Rng) -> Vec<Self> {
        let mut samples = trace.samples();
        let cut = |samples: &[&[u32]]| {
            let mut offsets = vec![0];
            for sample in samples {
                offsets.push(offsets[offsets.len() - 1] + sample.len() as u32);
            }
            (samples.concat(), offsets)
        };
        let order =
            |name, samples: &[&[u32]]| Self { name, batches: samples.chunks(batch).take(batches).map(cut).collect() };
        let mut orders = vec![order(REAL, &samples)];
        if samples.iter().any(|sample| sample.len() > 1) {
            samples.shuffle(random);
            orders.insert(0, order(SAMPLES, &samples));
        }
        orders
    }

    fn lookups(&self) -> u64 {
        self.sizes().into_iter().map(|(size, batches)| size * batches).sum()
    }

    /// The number of batches of each size in lookups.
    fn sizes(&self) -> BTreeMap<u64, u64> {
        let mut sizes = BTreeMap::new();
        for (ids, _) in &self.batches {
            *sizes.entry(ids.len() as u64).or_default() += 1;
        }
        sizes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::input::{Input, Source};
    use hotrow::Policy;
    use hotrow_plan::scars::Formula;
    use hotrow_report::trace::Trace;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64;

    const ROWS: u32 = 500;

    /// Lookups in random order; row r has probability ~ 1/(r + 3).
    fn lookups() -> Vec<u32> {
        let mut random = Pcg64::seed_from_u64(3);
        let mut lookups: Vec<u32> = (0..ROWS).flat_map(|row| vec![row; (20_000 / (row + 3)) as usize]).collect();
        lookups.shuffle(&mut random);
        lookups.truncate(lookups.len() - random.random_range(1..9));
        lookups
    }

    fn measures(skew: &Skew, pinned: &Pinned, lookups: &[u32], training: bool) -> Run {
        let config = GroupConfig::new(&[ROWS], 2).with_policy(Policy::Static).with_cache_rows(64);
        let job = Job { config, training, pinned_ways: 32, skew, pinned, backend: Backend::Cpu };
        run(&job, &[Order::shuffled(lookups, 300, 3)]).unwrap().remove(0)
    }

    #[test]
    fn a_right_prediction_is_within_and_a_wrong_one_is_not() {
        let lookups = lookups();
        let mut counts = vec![(0, 1); ROWS as usize];
        lookups.iter().for_each(|&row| counts[row as usize].0 += 1);
        let skew = Skew::from_bins(counts).unwrap();
        // Row r is the r-th hottest, apart from ties.
        let ranked: Vec<u32> = (0..ROWS).collect();
        let cache = Pinned::known(&skew, &ranked, 2, 32);
        assert_eq!(cache.rows.len(), 64);
        for training in [false, true] {
            let run = measures(&skew, &cache, &lookups, training);
            assert!(
                run.holds() == Some(Verdict::Holds)
                    && run.json.number("pinned_rows") == 64.0
                    && run.json.number("batches") > 100.0,
                "{run:?}"
            );
            assert_eq!(run.measures.len(), if training { 5 } else { 4 });
            let [missing, read] = [1, 3].map(|at: usize| run.measures[at].1);
            let record = run.json.number("record");
            let records = (missing.counted * record, missing.predicted * record);
            assert_eq!(records, (read.counted, read.predicted), "a record a missing row");
            let wrong = |run: &Run, what: &str| {
                let of = run.measures.iter().find(|measure| measure.0 == what).unwrap();
                assert!(run.holds() != Some(Verdict::Holds) && !of.1.within, "{what}: {run:?}");
            };
            // Rows wrongly said to be pinned, a row too few, another distribution, lookups with locality.
            let pinning = |rows: &[u32], pinned: &Pinned| {
                let mut pinned = pinned.clone();
                pinned.rows = rows.to_vec();
                pinned
            };
            wrong(&measures(&skew, &pinning(&[], &cache), &lookups, training), "bytes read");
            wrong(&measures(&skew, &pinning(&cache.rows[1..], &cache), &lookups, training), "hits");
            let flat = Skew::of(Formula::Zipf(0.0), ROWS.into()).unwrap();
            let expected = pinning(&cache.rows, &Pinned::expected(&flat, 2, 32));
            wrong(&measures(&flat, &expected, &lookups, training), "distinct rows");
            let mut sorted = lookups.clone();
            sorted.sort_unstable();
            wrong(&measures(&skew, &cache, &sorted, training), "distinct rows");
        }
    }

    fn judged(order: &'static str, misses: f64, predicted: Expected) -> Run {
        let measures = vec![("missing distinct rows", predicted.judge(1.0, misses, false))];
        Run::new(order, false, Object::default(), measures, 0.9)
    }

    #[test]
    fn only_a_proved_prediction_holds() {
        let sure = Expected { mean: 1000.0, variance: 1.0 };
        for (order, misses, predicted, verdict, passes) in [
            (SHUFFLED, 1000.0, sure, "the prediction holds", true),
            (SHUFFLED, 1020.0, sure, "the prediction does not hold", false),
            (SHUFFLED, 9.0, Expected { mean: 9.0, variance: 9.0 }, "too short to tell", false),
            (REAL, 950.0, sure, "not judged", true),
            (SAMPLES, 1050.0, sure, "not judged", true),
        ] {
            let run = judged(order, misses, predicted);
            assert!(run.text().contains(verdict) && run.text().contains("| locality  | 0.9000 "), "{}", run.text());
            assert_eq!(proved(&[run]).is_ok(), passes, "{order} {misses}");
        }
    }

    #[test]
    fn bags_are_the_traces_own() {
        let trace =
            Trace { ids: vec![1, 2, 3, 4, 5, 6], offsets: Some(vec![0, 3, 3, 4, 6]), distinct: 6, ..Trace::default() };
        let Source::Trace(lookups) = Input::of_trace(trace, None).unwrap().source else { unreachable!() };
        let orders = Order::of_samples(&lookups, 3, usize::MAX, &mut Pcg64::seed_from_u64(1));
        let names: Vec<_> = orders.iter().map(|order| order.name).collect();
        assert_eq!(names, [SAMPLES, REAL]);
        assert_eq!(orders[1].batches, [(vec![1, 2, 3, 4], vec![0, 3, 3, 4]), (vec![5, 6], vec![0, 2])]);
        assert_eq!(orders[1].sizes(), BTreeMap::from([(4, 1), (2, 1)]));
        // Whole samples, each once.
        let mut bags: Vec<Vec<u32>> = Vec::new();
        for (ids, offsets) in &orders[0].batches {
            bags.extend(offsets.windows(2).map(|ends| ids[ends[0] as usize..ends[1] as usize].to_vec()));
        }
        bags.sort();
        assert_eq!(bags, [vec![], vec![1, 2, 3], vec![4], vec![5, 6]]);
    }

    #[test]
    fn shuffled_lookups_are_cut_evenly() {
        let order = Order::shuffled(&[7; 8], 5, 2);
        assert_eq!(order.batches, [(vec![7; 5], vec![0, 2, 4, 5]), (vec![7; 3], vec![0, 2, 3])]);
        assert_eq!(order.sizes(), BTreeMap::from([(5, 1), (3, 1)]));
    }
}
