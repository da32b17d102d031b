//! `hotrow plan` without a mode: the size of cache and batch, and the expected traffic.

use super::amount;
use super::amount::{BINDING, MOST_DIM};
use super::distribution::Distribution;
use super::input::{Input, Source};
use super::report::{Answer, Job, curve};
use super::tables;
use super::verify;
use hotrow::{GroupConfig, Optimizer, OptimizerKind, Precision, WAYS};
use hotrow_plan::scars::{Budget, Forecast, Pinned, PlannedGroup};
use hotrow_report::failure::{Failure, ensure_usage};
use hotrow_report::names::one_of;
use hotrow_report::object::in_units;
use hotrow_report::options::{Backend, Options, TraceArgs, generated_trace, whole};
use hotrow_report::output;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use std::path::{Path, PathBuf};

/// The default smallest batch, which is SCARS'.
const SMALLEST: u64 = 2048;

/// The most lookups of a batch in one step.
const MOST_OF_A_BATCH: u64 = 1 << 30;

/// The most bytes that rounding up adds to all buffers together.
const ROUNDING: u64 = 1024;

/// The most rows of a table for `--verify`.
const MOST_ROWS: u32 = 1 << 27;

/// The most lookups drawn from a distribution.
const MOST_DRAWN: usize = 1 << 24;

#[derive(Debug, clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Lookups of an epoch: a file, a name in the data folder, or generated (zipf:rows=..,s=..[,n=..], drift:rows=..,s=..,every=..[,n=..], uniform:rows=..[,n=..],
    /// meta2021[:rows=..,n=..])
    #[arg(long, value_name = "T", conflicts_with = "distribution")]
    trace: Option<String>,
    #[command(flatten)]
    reading: TraceArgs,
    /// Instead of a trace: zipf:rows=1e9,s=1.05, exponential:rows=..,scale=.., half-normal:rows=..,scale=.. or uniform:rows=..
    #[arg(long, value_name = "D")]
    distribution: Option<Distribution>,
    /// Floats in a row
    #[arg(long, value_name = "D", default_value_t = 128, allow_negative_numbers = true,
          value_parser = whole(1..=MOST_DIM))]
    dim: u32,
    /// Precision of the table
    #[arg(long, default_value_t = Precision::Int8, value_parser = one_of(Precision::ALL))]
    precision: Precision,
    /// Update rule
    #[arg(long, default_value_t = OptimizerKind::Sgd, value_parser = one_of(OptimizerKind::ALL))]
    optimizer: OptimizerKind,
    /// Samples of a batch [default: the cheapest]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole(1u32..=1 << 30))]
    batch: Option<u32>,
    /// Device memory for cache and batch, such as 64MiB [default: 10 % of the table in FP32]
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = amount::some_bytes)]
    budget: Option<u64>,
    /// Bytes of a sample of a batch, the model's activations included [default: the bytes that hotrow allocates for a sample]
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = amount::some_bytes)]
    sample_bytes: Option<u64>,
    /// Lookups of a sample, for a distribution or a trace without bags [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = amount::positive)]
    lookups: Option<f64>,
    /// Samples of an epoch of a distribution [default: 1000000]
    #[arg(long, value_name = "N", conflicts_with = "trace", allow_negative_numbers = true, value_parser = amount::count)]
    samples: Option<u64>,
    /// Smallest batch allowed, in samples [default: 2048, or as many as half of the budget holds]
    #[arg(long, value_name = "N", conflicts_with = "batch", allow_negative_numbers = true, value_parser = amount::count)]
    smallest_batch: Option<u64>,
    /// Fixed cost of a batch of any size, as bytes over the bus
    #[arg(long, value_name = "SIZE", default_value = "0", allow_negative_numbers = true,
          value_parser = amount::bytes)]
    batch_cost: u64,
    /// Ways of a set that may be pinned, of 32
    #[arg(long, value_name = "N", default_value_t = WAYS, allow_negative_numbers = true,
          value_parser = whole(1..=WAYS))]
    pinned_ways: u32,
    /// Plan for reading only, without a backward
    #[arg(long)]
    inference: bool,
    /// Run the plan with the real kernels and compare the counters with the forecast, which is for shuffled lookups. A whole epoch fails if
    /// a counter is off by more than 1 %. A part of an epoch fails if a counter is off by more than chance explains (at most 3 %), or has
    /// too few lookups to tell. The table also shows the samples of a trace, shuffled and in real order
    #[arg(long)]
    verify: bool,
    /// Floats in a row for --verify; fewer are faster and change no counter of rows [default: the plan's]
    #[arg(long, value_name = "D", requires = "verify", allow_negative_numbers = true,
          value_parser = whole(1..=MOST_DIM))]
    verify_dim: Option<u32>,
    /// Most batches of each order for --verify [default: the epoch; 64 for a distribution, or more if the check needs them]
    #[arg(long, value_name = "N", requires = "verify", allow_negative_numbers = true, value_parser = amount::count)]
    verify_batches: Option<u64>,
    /// Draw STEM.svg and STEM.png: bytes and hit rate over cache size; for a trace with tables also STEM-tables.svg and .png, their accesses over rows
    #[arg(long, value_name = "STEM", value_parser = output::stem())]
    plot: Option<PathBuf>,
}

pub(super) fn run(options: &Options, args: &Args) -> Result<(), Failure> {
    ensure_usage!(
        options.backend != Backend::Gpu || args.verify,
        "--backend: wanted --verify beside gpu, found none; only it runs on a GPU, leave it out or add --verify"
    );
    options.check_used(args.verify, args.distribution.is_none())?;
    let read = options.trace_files(args.trace.as_slice());
    let plots: Vec<PathBuf> = args.plot.iter().flat_map(|stem| [stem.clone(), beside(stem)]).collect();
    output::check_files(options.json.as_deref(), None, &plots, &read)?;
    let input = args.input(options)?;
    let answer = job(args, &input)?.answer(args, options)?;
    let json = answer.json();
    options.write_json(&json)?;
    if let Some(stem) = &args.plot {
        curve(&answer).write(stem)?;
        if let Source::Trace(trace) = &answer.job.input.source
            && !trace.tables.is_empty()
        {
            tables::chart(&answer.job.input.name, &trace.tables).write(&beside(stem))?;
        }
    }
    output::print(&answer.text(&json))?;
    verify::proved(&answer.verify)
}

/// The stem of the chart of tables.
fn beside(stem: &Path) -> PathBuf {
    output::with_ending(stem, "-tables")
}

impl Args {
    fn input(&self, options: &Options) -> Result<Input, Failure> {
        if let Some(distribution) = &self.distribution {
            return Input::of_distribution(distribution, self.lookups, self.samples);
        }
        ensure_usage!(
            self.samples.is_none(),
            "--samples: wanted --distribution beside it, found none; a trace has its own"
        );
        let generated = || generated_trace("planning for generated lookups", "ones");
        let trace = self.trace.clone().unwrap_or_else(generated);
        Input::of_trace(options.trace(&trace, &self.reading, None)?, self.lookups)
    }

    /// The budget; by default a tenth of the table in FP32.
    fn budget(&self, rows: u32) -> u64 {
        self.budget.unwrap_or_else(|| {
            let bytes = (u64::from(rows) * u64::from(self.dim) * 4).div_ceil(10);
            output::note(&format!("no --budget: 10 % of the table in FP32, {}", in_units(bytes as f64)));
            bytes
        })
    }

    /// Samples of the smallest batch; an error if the epoch, a step or the budget is too small for it.
    fn smallest_batch(&self, input: &Input, budget: u64, sample_bytes: u64) -> Result<u64, Failure> {
        let largest = largest_batch(input);
        let room = budget / sample_bytes;
        let smallest = self.batch.map(u64::from).or(self.smallest_batch).unwrap_or_else(|| {
            let smallest = SMALLEST.min(room / 2).min(input.samples).min(largest).max(1);
            output::note(&format!("no --smallest-batch: {smallest} samples"));
            smallest
        });
        let option = if self.batch.is_some() { "--batch" } else { "--smallest-batch" };
        let refused = if smallest > input.samples {
            format!("{option}: wanted at most {}, the samples of an epoch, found {smallest}", input.samples)
        } else if smallest > largest {
            format!(
                "{option}: wanted a batch of at most {MOST_OF_A_BATCH} lookups, what a step takes, found {smallest} samples of {}; make \
                 it smaller",
                input.per_sample
            )
        } else if smallest > room {
            let [wanted, found] = [smallest as f64 * sample_bytes as f64, budget as f64].map(in_units);
            format!(
                "--budget: wanted at least {wanted}, what the smallest batch of {smallest} samples takes, found {found}; give more, or make \
                 the batch smaller"
            )
        } else {
            return Ok(smallest);
        };
        Err(Failure::Usage(refused))
    }
}

/// Samples of the largest batch that one step can take.
fn largest_batch(input: &Input) -> u64 {
    (MOST_OF_A_BATCH as f64 / input.per_sample) as u64
}

fn job<'a>(args: &Args, input: &'a Input) -> Result<Job<'a>, Failure> {
    let config = GroupConfig::new(&[input.rows], args.dim)
        .with_precision(args.precision)
        .with_optimizer(Optimizer::usual(args.optimizer, 0.01));
    let group = PlannedGroup::new(config, !args.inference, BINDING).map_err(Failure::usage)?;
    let memory = args.budget(input.rows);
    let own = (group.lookup as f64 * input.per_sample).ceil() as u64;
    let sample = args.sample_bytes.unwrap_or_else(|| {
        output::note(&format!(
            "no --sample-bytes: {} B a lookup, what the crate's own steps allocate; your model's activations come on top",
            group.lookup
        ));
        own
    });
    let smallest = args.smallest_batch(input, memory, sample)?;
    // The memory that the group needs beside cache and lookups is not split.
    let fixed = if sample < own {
        group.device_bytes(0, 0).map_err(Failure::usage)?
    } else {
        let lookups = (smallest as f64 * input.per_sample).round() as u64;
        let least = group.device_bytes(0, lookups as u32).map_err(Failure::usage)?;
        (least + ROUNDING).saturating_sub(lookups * group.lookup)
    };
    let left = memory.saturating_sub(fixed).max(smallest * sample);
    let largest = args.batch.map_or_else(|| largest_batch(input), u64::from);
    let budget = Budget {
        smallest_batch: smallest,
        largest_batch: largest,
        batch_cost: args.batch_cost as f64,
        pinned_ways: args.pinned_ways,
        ..Budget::new(left, sample, input.samples, &group)
    };
    let planner = input.planner(budget.clone())?;
    Ok(Job { input, group, budget, planner, memory })
}

impl<'a> Job<'a> {
    fn answer(self, args: &Args, options: &Options) -> Result<Answer<'a>, Failure> {
        let plan = self.planner.search();
        let cache = self.planner.pinned(plan.best).counted(&self.input.skew, args.pinned_ways);
        let batch = plan.cheapest().batch;
        let device_bytes = self.device_bytes(&cache, self.planner.lookups_of(batch))?;
        let verify = if args.verify { self.verify(args, &cache, batch, options)? } else { Vec::new() };
        Ok(Answer { job: self, plan, cache, device_bytes, verify })
    }

    /// Device bytes of the planned group. A note says if they exceed the budget.
    fn device_bytes(&self, cache: &Pinned, lookups: u64) -> Result<u64, Failure> {
        let taken = self.group.device_bytes(self.cache_rows(cache), lookups as u32).map_err(Failure::usage)?;
        if taken > self.memory {
            output::note(&format!(
                "the group takes {} of device memory ({} B a lookup), more than the budget of {}; give more, or make the batch smaller",
                in_units(taken as f64),
                self.group.lookup,
                in_units(self.memory as f64)
            ));
        }
        Ok(taken)
    }

    fn verify(&self, args: &Args, cache: &Pinned, batch: u64, options: &Options) -> Result<Vec<verify::Run>, Failure> {
        let input = self.input;
        ensure_usage!(
            input.rows <= MOST_ROWS,
            "--verify: wanted a table of at most {MOST_ROWS} rows, found {}; verify a smaller one of the same shape",
            input.rows
        );
        let mut random = Pcg64::seed_from_u64(options.seed);
        let lookups = self.planner.lookups_of(batch) as usize;
        let bag = (input.per_sample.round() as usize).max(1);
        let (pinned, orders) = match &input.source {
            Source::Trace(trace) => {
                let batches = args.verify_batches.map_or(usize::MAX, |batches| batches as usize);
                let mut shuffled = trace.ids.clone();
                shuffled.shuffle(&mut random);
                shuffled.truncate(batches.saturating_mul(lookups));
                let mut orders = vec![verify::Order::shuffled(&shuffled, lookups, bag)];
                orders.extend(verify::Order::of_samples(trace, batch as usize, batches, &mut random));
                (cache.clone(), orders)
            }
            Source::Distribution(distribution) => {
                // The rows are generated: row i is the i-th hottest, so the pinned rows are known.
                let pinned = Pinned::by_rank(&input.skew, cache.sets, args.pinned_ways);
                let enough = || Forecast::batch(&input.skew, &pinned, lookups as u64).enough_batches(lookups as u64);
                let batches = args.verify_batches.unwrap_or_else(enough) as usize;
                let drawn = distribution.draw(batches.saturating_mul(lookups).min(MOST_DRAWN), &mut random)?;
                (pinned, vec![verify::Order::shuffled(&drawn, lookups, bag)])
            }
        };
        let mut config = self.group.with_cache(self.cache_rows(cache)).with_seed(options.group_seed());
        config.dim = args.verify_dim.unwrap_or(config.dim);
        let job = verify::Job {
            config,
            training: self.group.training,
            pinned_ways: args.pinned_ways,
            skew: &input.skew,
            pinned: &pinned,
            backend: options.backend,
        };
        verify::run(&job, &orders)
    }
}
