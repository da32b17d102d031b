//! `hotrow plan dist`: the bytes, memory and time of a table that is sharded over several ranks (SPEC 11), before anything runs.

mod bill;
mod cache;
mod charts;
mod count;
mod deal;
mod expect;
mod memory;
mod report;
mod run;
mod verify;
mod wire;

use super::amount::{self, MOST_DIM};
use super::distribution::Distribution;
use crate::failure::Failure;
use crate::names::one_of;
use crate::object::Object;
use crate::options::{Options, WireArgs, percent, whole};
use crate::output;
use crate::trace::{Trace, split_list};
use anyhow::anyhow;
use bill::Speed;
use cache::Cache;
use count::Counted;
use deal::{Batches, Cut};
use expect::Model;
use hotrow::dist::WireForm;
use hotrow::{OptimizerKind, Policy, Pooling, Precision};
use report::Answer;
use std::path::PathBuf;
use verify::Sent;
use wire::Wire;

/// The trace that is planned for if none is given.
const GENERATED: &str = "zipf:rows=100000,s=1.05,n=1000000";

/// The default share of the rows in the cache, in percent.
const CACHE_PERCENT: f64 = 10.0;

/// Steps of a distribution if nobody says.
const STEPS: u64 = 16;

/// Most accesses of a batch (SPEC 3).
const MOST_ACCESSES: u64 = 1 << 30;

/// Most accesses that are drawn from a distribution.
const MOST_DRAWN: u64 = 1 << 30;

/// Most slots of a cache (SPEC 4).
const MOST_SLOTS: u64 = 1 << 31;

/// The most ranks and virtual shards.
const MOST_RANKS: u32 = 1024;

/// The most rows whose replicas are planned.
const MOST_REPLICAS: u32 = 1 << 24;

/// The most that a counted phase may differ from an expected one, in percent.
const ALLOWED_PERCENT: f64 = 1.0;

/// Count the bytes between ranks that share a table, their memory and their time: for a trace exactly, for a distribution in expectation
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Traces: files, names in the data folder, or generated (zipf:rows=..,s=..[,n=..], uniform:rows=..[,n=..], meta2021[:rows=..,n=..])
    #[arg(long, value_name = "T[,T]")]
    trace: Vec<String>,
    /// A distribution, which needs no trace; may be given several times: zipf:rows=1e9,s=1.05, exponential:rows=..,scale=..,
    /// half-normal:rows=..,scale=.. or uniform:rows=..
    #[arg(long, visible_alias = "dist", value_name = "D")]
    distribution: Vec<Distribution>,
    /// Ranks that share the table, powers of two
    #[arg(long, value_name = "R[,R]", value_delimiter = ',', default_values_t = [8], allow_negative_numbers = true, value_parser = power)]
    ranks: Vec<u32>,
    /// Virtual shards, a power of two, at least the ranks [default: the most ranks]
    #[arg(long, value_name = "V", allow_negative_numbers = true, value_parser = power)]
    shards: Option<u32>,
    /// Bags of a batch of all ranks together
    #[arg(long, value_name = "N", default_value_t = 4096, allow_negative_numbers = true, value_parser = whole(1u32..=1 << 30))]
    batch: u32,
    /// Features; the bags of a batch lie feature by feature
    #[arg(long, value_name = "F", default_value_t = 1, allow_negative_numbers = true, value_parser = whole(1u32..=65_536))]
    features: u32,
    /// Accesses of a bag, for a distribution or a trace without bags [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole(1u32..=1 << 30))]
    lookups: Option<u32>,
    /// Steps from a new group on [default: all whole batches of a trace; 16 of a distribution]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = amount::count)]
    steps: Option<u64>,
    /// Deal the bags of a trace in random order
    #[arg(long)]
    shuffle: bool,
    /// Rows of the table of a trace [default: the largest id and 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole(1u32..=4_294_967_294))]
    rows: Option<u32>,
    /// Floats in a row
    #[arg(long, value_name = "D", default_value_t = 128, allow_negative_numbers = true, value_parser = whole(1..=MOST_DIM))]
    dim: u32,
    /// Precision of the table
    #[arg(long, default_value_t = Precision::Int8, value_parser = one_of(Precision::ALL))]
    precision: Precision,
    /// Update rule
    #[arg(long, default_value_t = OptimizerKind::Sgd, value_parser = one_of(OptimizerKind::ALL))]
    optimizer: OptimizerKind,
    /// Pooling
    #[arg(long, default_value_t = Pooling::Sum, value_parser = one_of(Pooling::ALL))]
    pooling: Pooling,
    /// Each access has a weight
    #[arg(long)]
    weighted: bool,
    #[command(flatten)]
    wire: WireArgs,
    /// Rows that the FP32 cache of all ranks holds, in percent of all rows; 0: no cache [default: 10]
    #[arg(long, value_name = "P", allow_negative_numbers = true, conflicts_with = "cache_rows", value_parser = percent)]
    cache_percent: Option<f64>,
    /// Rows that the FP32 cache of all ranks holds
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole(0u32..=u32::MAX))]
    cache_rows: Option<u32>,
    /// Replacement policy; static pins the hottest rows
    #[arg(long, default_value_t = Policy::Lru, value_parser = one_of(Policy::ALL))]
    policy: Policy,
    /// Microseconds of a message
    #[arg(long, value_name = "US", default_value_t = 25.0, allow_negative_numbers = true, value_parser = amount::positive)]
    alpha: f64,
    /// Gbit/s of a machine's network interface, in each direction
    #[arg(long, value_name = "GBIT", default_value_t = 10.0, allow_negative_numbers = true, value_parser = amount::positive)]
    beta: f64,
    /// GB/s of logical bytes of a rank's own work (SPEC 6); `hotrow bench` measures it
    #[arg(long, value_name = "GB", default_value_t = 100.0, allow_negative_numbers = true, value_parser = amount::positive)]
    gamma: f64,
    /// Ranks on one machine, a power of two; they share its interface and cross none among themselves
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = power)]
    per_host: u32,
    /// Numbers of the hottest rows that could be replicated on every rank
    #[arg(long, value_name = "K[,K]", value_delimiter = ',', default_values_t = [10, 100, 1000], allow_negative_numbers = true,
          value_parser = whole(1u32..=MOST_REPLICAS))]
    replicas: Vec<u32>,
    /// Compare with the bytes of a real run, a JSON file: {"steps": N, "pairs": [{"from": 0, "to": 1, "counts": B, "requests": B, "sizes": B,
    /// "rows": B, "gradients": B}]}, bytes over all steps. Exit code 1 if one differs, for a distribution by more than 1 %
    #[arg(long, value_name = "FILE")]
    counted: Option<PathBuf>,
    /// Run the steps of the trace on groups over ranks, as threads of this process, and compare their bytes
    #[arg(long, conflicts_with_all = ["counted", "distribution"])]
    verify: bool,
    /// Draw STEM, STEM-imbalance and STEM-exchange as SVG and PNG: bytes a rank, imbalance, and share of the time in exchange over the ranks
    #[arg(long, value_name = "STEM", value_parser = output::stem())]
    plot: Option<PathBuf>,
}

/// Reads a power of two.
fn power(text: &str) -> Result<u32, String> {
    let found = text.trim().parse().ok().filter(|number: &u32| number.is_power_of_two() && *number <= MOST_RANKS);
    found.ok_or_else(|| format!("wanted a power of two from 1 to {MOST_RANKS}, such as 8"))
}

pub(super) fn run(options: &Options, args: &Args) -> Result<(), Failure> {
    let mut traces: Vec<String> = args.trace.iter().flat_map(|text| split_list(text)).collect();
    options.check_used(false, !traces.is_empty())?;
    let stems = args.plot.as_deref().map(charts::stems);
    let mut read = options.trace_files(&traces);
    read.extend(args.counted.clone());
    output::check_files(options.json.as_deref(), None, stems.as_ref().map_or(&[], |stems| stems), &read)?;
    if traces.is_empty() && args.distribution.is_empty() {
        output::note(&format!(
            "no --trace: planning for generated accesses, {GENERATED}; name a file, or a trace of --data DIR, for real ones"
        ));
        traces.push(GENERATED.to_owned());
    }
    let plan = Plan::new(args, options, traces.len() + args.distribution.len())?;
    let (mut answers, mut agrees) = (Vec::new(), true);
    for text in &traces {
        plan.of_trace(options.trace(text)?, &mut answers, &mut agrees)?;
    }
    for from in &args.distribution {
        plan.of_distribution(from, &mut answers, &mut agrees)?;
    }
    if let Some(path) = &options.json {
        output::write_json(path, &answers)?;
    }
    if let Some(stem) = &args.plot {
        charts::write(&answers, stem)?;
    }
    if let [one] = &answers[..] {
        output::print(&report::text(one))?;
    } else {
        output::print(&report::summary(&answers))?;
    }
    if agrees {
        return Ok(());
    }
    Err(anyhow!(
        "wanted the bytes that were planned, found the deviations above; was the run of --counted one of the same options?"
    )
    .into())
}

/// The checked options.
struct Plan<'a> {
    args: &'a Args,
    seed: u64,
    shards: u32,
    wires: Vec<Wire>,
    replicas: Vec<u32>,
    speed: Speed,
}

impl<'a> Plan<'a> {
    fn new(args: &'a Args, options: &Options, sources: usize) -> Result<Self, Failure> {
        let usage = |text: String| Err(Failure::Usage(text));
        let mut ranks = args.ranks.clone();
        ranks.sort_unstable();
        ranks.dedup();
        let most = ranks.last().copied().unwrap_or(1);
        let shards = args.shards.unwrap_or(most);
        if most > shards {
            return usage(format!(
                "--ranks: wanted at most {shards}, the --shards, found {most}; a rank holds whole virtual shards, so take more of them"
            ));
        }
        let Args { batch, features, .. } = *args;
        if !batch.is_multiple_of(features) {
            return usage(format!(
                "--batch: wanted a multiple of the {features} features, found {batch}; each feature has as many bags"
            ));
        }
        if batch / features < most {
            return usage(format!(
                "--batch: wanted at least {}, a bag of each of {features} features for each of {most} ranks, found {batch}; make it larger",
                u64::from(most) * u64::from(features)
            ));
        }
        if u64::from(batch) * u64::from(args.lookups.unwrap_or(1)) > MOST_ACCESSES {
            return usage(format!(
                "--batch: wanted at most {MOST_ACCESSES} accesses of a batch, what a step takes, found {batch} bags of {}; make it smaller",
                args.lookups.unwrap_or(1)
            ));
        }
        if args.plot.is_some() && most == 1 {
            return usage("--plot: wanted --ranks above 1, found 1; a single rank exchanges nothing".to_owned());
        }
        if args.counted.is_some() && (sources, ranks.len()) != (1, 1) {
            return usage(format!(
                "--counted: wanted one trace or distribution and one number of ranks beside it, found {sources} and {}; a run has one of each",
                ranks.len()
            ));
        }
        let wire = |&ranks: &u32| Wire {
            dim: args.dim,
            precision: args.precision,
            form: args.wire.options(),
            pooling: args.pooling,
            weighted: args.weighted,
            features,
            ranks,
            shards,
        };
        for (option, form) in [("--wire-rows", args.wire.wire_rows), ("--wire-gradients", args.wire.wire_gradients)] {
            if form != WireForm::Exact && wire(&most).words(form) >= args.dim {
                return usage(format!(
                    "{option}: wanted a form that is shorter than FP32, found {form} for {} floats a row; take exact",
                    args.dim
                ));
            }
        }
        let mut replicas = args.replicas.clone();
        replicas.sort_unstable();
        replicas.dedup();
        Ok(Self {
            args,
            seed: options.seed,
            shards,
            wires: ranks.iter().map(wire).collect(),
            replicas,
            speed: Speed {
                alpha: args.alpha * 1e-6,
                beta: args.beta * 1e9 / 8.0,
                gamma: args.gamma * 1e9,
                per_host: args.per_host,
            },
        })
    }

    /// The cache of a table of so many rows.
    fn cache(&self, rows: u32) -> Result<Cache, Failure> {
        let percent = self.args.cache_percent.unwrap_or(CACHE_PERCENT);
        let of_percent = || (f64::from(rows) * percent / 100.0).ceil() as u32;
        let wanted = self.args.cache_rows.unwrap_or_else(of_percent);
        if wanted > rows {
            return Err(Failure::Usage(format!(
                "--cache-rows: wanted at most {rows}, the rows of the table, found {wanted}; make it smaller"
            )));
        }
        let cache = Cache { policy: self.args.policy, rows: wanted, shards: self.shards };
        if cache.slots() > MOST_SLOTS {
            return Err(Failure::Usage(format!(
                "--cache-percent: wanted at most {MOST_SLOTS} slots, found {}; make the cache smaller",
                cache.slots()
            )));
        }
        Ok(cache)
    }

    /// Counts a trace for every number of ranks.
    fn of_trace(&self, trace: Trace, answers: &mut Vec<Object>, agrees: &mut bool) -> Result<(), Failure> {
        let largest = trace.ids.iter().copied().max().unwrap_or(0);
        let rows = self.args.rows.unwrap_or(largest + 1);
        if largest >= rows {
            return Err(Failure::Usage(format!(
                "--rows: wanted more than {largest}, the largest id of {}, found {rows}; leave it out, or give the table's",
                trace.name
            )));
        }
        let cache = self.cache(rows)?;
        let pinned = if self.args.policy == Policy::Static { cache.slots() } else { 0 };
        let most = pinned.max(self.replicas.last().map_or(0, |&rows| rows.into()));
        let hottest = trace.hottest(usize::try_from(most).unwrap_or(usize::MAX));
        let name = trace.name.clone();
        // Beside a distribution, the bags of a trace keep their own lengths.
        let has_bags = trace.offsets.is_some() && !self.args.distribution.is_empty();
        let lookups = self.args.lookups.filter(|_| !has_bags);
        let Args { batch, features, steps, shuffle, .. } = *self.args;
        let batches =
            Batches::new(trace, Cut { batch, features, lookups, steps, shuffled: shuffle.then_some(self.seed) })?;
        let counted = count::count(&batches, &cache, &hottest, &self.replicas, &self.wires, &self.speed)?;
        let bags = batches.steps() as u64 * u64::from(batch);
        let source = Object::default()
            .with("name", name)
            .with("kind", "trace")
            .with("rows", rows)
            .with("steps", batches.steps())
            .with("accesses_per_bag", batches.accesses() as f64 / bags as f64)
            .with("shuffled", shuffle)
            .with("bags_left_out", batches.left_out);
        let mut runs = Vec::new();
        for &wire in self.wires.iter().filter(|_| self.args.verify) {
            runs.push(
                run::run(&batches, &cache, &hottest, rows, self.args.optimizer, wire)
                    .map_err(|error| anyhow!(error))?,
            );
        }
        self.answer(&source, (&cache, rows), (&counted, &runs), answers, agrees)
    }

    /// The expected bills of a distribution for every number of ranks.
    fn of_distribution(
        &self,
        from: &Distribution,
        answers: &mut Vec<Object>,
        agrees: &mut bool,
    ) -> Result<(), Failure> {
        let rows = u32::try_from(from.rows).ok().filter(|&rows| rows < u32::MAX);
        let Some(rows) = rows else {
            return Err(Failure::Usage(format!(
                "--distribution: wanted at most 4294967294 rows, what a group of tables holds, found {}; split them over several",
                from.rows
            )));
        };
        for (option, given) in
            [("--rows", self.args.rows.is_some()), ("--shuffle", self.args.shuffle && self.args.trace.is_empty())]
        {
            if given {
                return Err(Failure::Usage(format!(
                    "{option}: wanted --trace alone beside it, found --distribution; a distribution has its own rows and no order, so leave it out"
                )));
            }
        }
        let cache = self.cache(rows)?;
        let Args { batch, lookups, .. } = *self.args;
        let (lookups, steps) = (lookups.unwrap_or(1), self.args.steps.unwrap_or(STEPS));
        let accesses = u64::from(batch) * u64::from(lookups);
        if cache.rows > 0 && cache.policy != Policy::Static && accesses.saturating_mul(steps) > MOST_DRAWN {
            return Err(Failure::Usage(format!(
                "--steps: wanted at most {MOST_DRAWN} accesses to draw, found {steps} steps of {accesses}; take fewer steps, --policy static \
                 or --cache-percent 0, which draw none"
            )));
        }
        let skew = from.skew().map_err(Failure::usage)?;
        let dirty = cache::expected(&cache, from, &skew, accesses as usize, steps, self.seed)?;
        let model = Model { skew: &skew, dirty: &dirty, batch, lookups, ends: &self.replicas };
        let expected: Vec<Counted> =
            self.wires.iter().map(|&wire| Counted::expected(&model.bill(wire), steps, &self.speed)).collect();
        let source = Object::default()
            .with("name", from.text.as_str())
            .with("kind", "distribution")
            .with("rows", rows)
            .with("steps", steps)
            .with("accesses_per_bag", f64::from(lookups))
            .with("shuffled", true)
            .with("bags_left_out", 0);
        self.answer(&source, (&cache, rows), (&expected, &[]), answers, agrees)
    }

    fn answer(
        &self,
        source: &Object,
        (cache, rows): (&Cache, u32),
        (counted, runs): (&[Counted], &[Sent]),
        answers: &mut Vec<Object>,
        agrees: &mut bool,
    ) -> Result<(), Failure> {
        let Args { dim, precision, optimizer, policy, pooling, weighted, features, .. } = self.args;
        let group = Object::default()
            .with("dim", *dim)
            .with("precision", precision.name())
            .with("optimizer", optimizer.name())
            .with("policy", policy.name())
            .with("cache_rows", cache.rows)
            .with("slots", cache.slots())
            .with("pooling", pooling.name())
            .with("weighted", *weighted)
            .with("features", *features)
            .with("wire_rows", self.args.wire.wire_rows.name())
            .with("wire_gradients", self.args.wire.wire_gradients.name())
            .with("summed", self.args.wire.summed);
        for (number, one) in counted.iter().enumerate() {
            let verify = match runs.get(number) {
                Some(sent) => verify::compare(&one.mean, sent, 0.0),
                None => self.verify(one, source.text("kind") == "trace")?,
            };
            *agrees &= verify.1;
            let kept = memory::of_rank(&one.mean.wire, cache, *optimizer, rows).map_err(Failure::usage)?;
            let answer = Answer {
                source,
                group: &group,
                batch: self.args.batch,
                counted: one,
                kept,
                speed: &self.speed,
                replicas: &self.replicas,
                verify: &verify.0,
            };
            answers.push(answer.json());
        }
        Ok(())
    }

    /// Compares a bill with the counted bytes, if there are any.
    fn verify(&self, counted: &Counted, is_exact: bool) -> Result<(Vec<Object>, bool), Failure> {
        let Some(path) = &self.args.counted else { return Ok((Vec::new(), true)) };
        let sent = Sent::read(path, counted.mean.ranks())?;
        if is_exact && sent.steps != counted.steps {
            return Err(Failure::Usage(format!(
                "--counted: wanted a run of {} steps, those of the plan, found {}; give --steps",
                counted.steps, sent.steps
            )));
        }
        Ok(verify::compare(&counted.mean, &sent, if is_exact { 0.0 } else { ALLOWED_PERCENT }))
    }
}
