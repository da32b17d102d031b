//! `hotrow plan` without a mode: the cache, the batch, and what they are expected to do.

use super::amount::{self, in_units};
use super::distribution::Distribution;
use super::expect::{form, sight};
use super::fit::{Cache, Pinned};
use super::input::{From, Input};
use super::report::{Budget, Group, OneMore, Plan, Point, Report, SkewLine, Source};
use super::scaling::scaling;
use super::sizes::{Shape, Sizes, slots};
use super::split::{Asked, Splitter};
use super::{MOST_DIM, charts, portions, verify};
use crate::failure::Failure;
use crate::names::{OptimizerName, PrecisionName};
use crate::options::Options;
use crate::output;
use hotrow::layout::WAYS;
use hotrow::scars::{self, RowBytes, Workload};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use std::path::PathBuf;

/// What is planned for when nothing is named.
const GENERATED: &str = "zipf:rows=100000,s=1.05,n=1000000";

/// The smallest batch, if nobody says: P3's.
const SMALLEST: u64 = 2048;

/// Most lookups of a batch: what a step takes.
const MOST_OF_A_BATCH: u64 = 1 << 30;

/// What rounding each buffer up adds to them all, at most.
const ROUNDING: u64 = 1024;

/// Shares of the lookups that the skew table has, in percent.
const SHARES: [f64; 5] = [50.0, 80.0, 90.0, 95.0, 99.0];

/// Options of a plan for cache and batch.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Lookups of an epoch: a file, a name in the data folder, or generated (zipf:rows=..,s=..[,n=..], uniform:rows=..[,n=..],
    /// meta2021[:rows=..,n=..])
    #[arg(long, value_name = "T", conflicts_with = "distribution")]
    trace: Option<String>,
    /// Instead of a trace: zipf:rows=1e9,s=1.05, exponential:rows=..,scale=.., half-normal:rows=..,scale=.. or uniform:rows=..
    #[arg(long, value_name = "D")]
    distribution: Option<Distribution>,
    /// Floats in a row
    #[arg(long, value_name = "D", default_value_t = 128, allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=MOST_DIM))]
    dim: u32,
    /// Precision of the table
    #[arg(long, value_enum, default_value_t = PrecisionName::Int8)]
    precision: PrecisionName,
    /// Update rule
    #[arg(long, value_enum, default_value_t = OptimizerName::Sgd)]
    optimizer: OptimizerName,
    /// Samples of a batch [default: the best]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    batch: Option<u32>,
    /// Device memory for cache and batch, such as 64MiB [default: 10 % of the table in FP32]
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = amount::some_bytes)]
    budget: Option<u64>,
    /// Bytes that a sample of a batch takes, the model's activations included [default: what the crate's own steps take]
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = amount::some_bytes)]
    sample_bytes: Option<u64>,
    /// Lookups of a sample, where a trace has no bags and for a distribution [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = amount::positive)]
    lookups: Option<f64>,
    /// Samples of an epoch of a distribution [default: 1000000]
    #[arg(long, value_name = "N", conflicts_with = "trace", allow_negative_numbers = true, value_parser = amount::count)]
    samples: Option<u64>,
    /// Samples of the smallest batch that serves [default: 2048, or what half of the budget holds]
    #[arg(long, value_name = "N", conflicts_with = "batch", allow_negative_numbers = true, value_parser = amount::count)]
    smallest_batch: Option<u64>,
    /// What a batch costs whatever its size, as bytes over the bus
    #[arg(long, value_name = "SIZE", default_value = "0", allow_negative_numbers = true,
          value_parser = amount::bytes)]
    batch_cost: u64,
    /// Ways of a set that may be pinned, of 32
    #[arg(long, value_name = "N", default_value_t = WAYS, allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(WAYS)))]
    pinned_ways: u32,
    /// Rows are read only: no backward, nothing is written
    #[arg(long)]
    inference: bool,
    /// P3's scaling claim: rows and batch N times as large
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = amount::times)]
    scale: Option<f64>,
    /// Run the plan with the real kernels and compare counters with it. The forecast is for shuffled lookups: these fail if off by more
    /// than 1 % (in parts of an epoch than chance, 3 % at most) or too few to tell. A trace's samples, shuffled and in real order, are
    /// shown beside it
    #[arg(long)]
    verify: bool,
    /// Floats in a row while verifying: fewer are faster, and change no row counted [default: the plan's]
    #[arg(long, value_name = "D", requires = "verify", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=MOST_DIM))]
    verify_dim: Option<u32>,
    /// Most batches of each order that are run [default: the epoch; of a distribution 64, or what it takes to tell]
    #[arg(long, value_name = "N", requires = "verify", allow_negative_numbers = true, value_parser = amount::count)]
    verify_batches: Option<u64>,
    /// Draw STEM.svg and STEM.png: bytes and hit rate over cache size; and STEM-quarters: who uses which part of it
    #[arg(long, value_name = "STEM")]
    plot: Option<PathBuf>,
}

/// Runs the subcommand.
pub(super) fn run(options: &Options, args: &Args) -> Result<(), Failure> {
    let quarters = args.plot.as_deref().map(|stem| output::with_ending(stem, "-quarters"));
    output::check_plot("--plot", args.plot.as_deref())?;
    output::check_plot("--plot", quarters.as_deref())?;
    let input = args.input(options)?;
    let job = Job::new(args, input)?;
    let report = job.report(options, args)?;
    if let Some(path) = &options.json {
        output::write_json(path, &report)?;
    }
    if let Some((stem, quarters)) = args.plot.as_ref().zip(quarters) {
        charts::curve(&report).write(stem)?;
        charts::quarters(&report.source.name, &report.portions).write(&quarters)?;
    }
    output::print(&report.text())?;
    verify::proved(&report.verify)
}

impl Args {
    /// Whether a trace may be looked up in the data folder.
    pub(super) const fn looks_up(&self) -> bool {
        self.distribution.is_none()
    }

    /// Whether kernels run.
    pub(super) const fn verify(&self) -> bool {
        self.verify
    }

    fn input(&self, options: &Options) -> Result<Input, Failure> {
        if let Some(distribution) = &self.distribution {
            return Input::of_distribution(distribution, self.lookups, self.samples);
        }
        if self.samples.is_some() {
            return Err(Failure::Usage(
                "--samples: wanted --distribution beside it, found none; a trace has its own".into(),
            ));
        }
        let trace = self.trace.as_deref().unwrap_or_else(|| {
            output::note(&format!(
                "no --trace: planning for generated lookups, {GENERATED}; name a file, or a trace of --data DIR, for real ones"
            ));
            GENERATED
        });
        Input::of_trace(options.trace(trace)?, self.lookups)
    }
}

/// What is planned for, and with what.
struct Job {
    input: Input,
    shape: Shape,
    sizes: Sizes,
    asked: Asked,
    /// The budget, all of it.
    bytes: u64,
}

impl Job {
    fn new(args: &Args, input: Input) -> Result<Self, Failure> {
        let &Args { dim, precision, optimizer, inference, .. } = args;
        let batch = args.batch.map(u64::from);
        let shape = Shape { rows: input.rows, dim, precision, optimizer, inference };
        let sizes = shape.sizes()?;
        let bytes = args.budget.unwrap_or_else(|| {
            let bytes = (u64::from(input.rows) * u64::from(dim) * 4).div_ceil(10);
            output::note(&format!("no --budget: 10 % of the table in FP32, {}", in_units(bytes as f64)));
            bytes
        });
        let own = (sizes.lookup as f64 * input.lookups).ceil() as u64;
        let sample_bytes = args.sample_bytes.unwrap_or_else(|| {
                output::note(&format!(
                    "no --sample-bytes: {} B a lookup, what the crate's own steps allocate; your model's activations come on top",
                    sizes.lookup
                ));
                own
        });
        let largest = (MOST_OF_A_BATCH as f64 / input.lookups) as u64;
        let room = bytes / sample_bytes;
        let smallest = batch.or(args.smallest_batch).unwrap_or_else(|| {
            let smallest = SMALLEST.min(room / 2).min(input.samples).min(largest).max(1);
            output::note(&format!("no --smallest-batch: {smallest} samples"));
            smallest
        });
        let option = if batch.is_some() { "--batch" } else { "--smallest-batch" };
        if smallest > input.samples {
            return Err(Failure::Usage(format!(
                "{option}: wanted at most {}, the samples of an epoch, found {smallest}",
                input.samples
            )));
        }
        if smallest > largest {
            return Err(Failure::Usage(format!(
                "{option}: wanted a batch of at most {MOST_OF_A_BATCH} lookups, what a step takes, found {smallest} samples of {}; make \
                 it smaller",
                input.lookups
            )));
        }
        if smallest > room {
            return Err(Failure::Usage(format!(
                "--budget: wanted at least {}, what the smallest batch of {smallest} samples takes, found {}; give more, or make the \
                 batch smaller",
                in_units(smallest as f64 * sample_bytes as f64),
                in_units(bytes as f64)
            )));
        }
        // What a group takes beside its cache and its lookups is not theirs to split.
        let fixed = if sample_bytes < own {
            shape.device(0, 0)?
        } else {
            let lookups = (smallest as f64 * input.lookups).round() as u64;
            (shape.device(0, lookups as u32)? + ROUNDING).saturating_sub(lookups * sizes.lookup)
        };
        let asked = Asked {
            budget: scars::Budget {
                bytes: bytes.saturating_sub(fixed).max(smallest * sample_bytes),
                sample: sample_bytes,
                smallest_batch: smallest,
                batch_cost: args.batch_cost as f64,
            },
            fixed: batch.is_some(),
            largest_batch: largest,
            row: RowBytes {
                record: sizes.record,
                // A row takes a whole share of its set.
                slot: (sizes.slot * u64::from(WAYS)).div_ceil(u64::from(args.pinned_ways)),
                index: 4,
            },
            set: sizes.slot * u64::from(WAYS),
            most_sets: shape.most_sets(),
            share: args.pinned_ways,
            workload: if args.inference {
                Workload::inference(input.samples)
            } else {
                Workload::training(input.samples)
            },
            lookups: input.lookups,
        };
        Ok(Self { input, shape, sizes, asked, bytes })
    }
}

impl Job {
    fn report(&self, options: &Options, args: &Args) -> Result<Report, Failure> {
        let Self { input, shape, sizes, asked, .. } = self;
        let splitter = Splitter::new(asked, input)?;
        let found = splitter.search()?;
        let one_more = splitter.one_more(&found);
        let cache = splitter.cache(found.best);
        let optimum = found.points[&found.best].clone();
        let mut report = Report {
            source: self.source(),
            group: Group {
                dim: shape.dim,
                precision: shape.precision,
                optimizer: shape.optimizer,
                training: !shape.inference,
                record_bytes: sizes.record,
                slot_bytes: sizes.slot,
            },
            budget: Budget {
                bytes: self.bytes,
                sample_bytes: asked.budget.sample,
                smallest_batch: asked.budget.smallest_batch,
                fixed_batch: asked.fixed,
                batch_cost: args.batch_cost,
                pinned_ways: args.pinned_ways,
            },
            plan: self.plan(&cache, &optimum, one_more)?,
            optimum,
            ideal: splitter.ideal()?,
            curve: found.points.into_values().collect(),
            skew: self.skew_lines(),
            portions: self.portions(&cache, options.seed),
            scaling: None,
            verify: Vec::new(),
        };
        if let Some(times) = args.scale {
            let (lookups, words) = (report.plan.batch_lookups, sizes.record as f64 / 4.0);
            report.scaling = Some(scaling(times, input.rows.into(), lookups, words)?);
        }
        if args.verify {
            report.verify = self.verify(&cache, &report.plan, options, args)?;
        }
        Ok(report)
    }

    fn source(&self) -> Source {
        let input = &self.input;
        let (kind, used_rows) = match &input.from {
            From::Trace(lookups) => ("trace", Some(lookups.ranked.len() as u64)),
            From::Distribution(_) => ("distribution", None),
        };
        Source {
            name: input.name.clone(),
            kind,
            rows: input.rows.into(),
            used_rows,
            samples: input.samples,
            lookups_per_sample: input.lookups,
            lookups: input.samples as f64 * input.lookups,
            error: input.skew.error(),
        }
    }

    fn skew_lines(&self) -> Vec<SkewLine> {
        let line = |&percent: &f64| {
            let rows = self.input.skew.rows_for(percent / 100.0);
            SkewLine {
                lookups_percent: percent,
                rows,
                rows_percent: 100.0 * rows as f64 / f64::from(self.input.rows),
                cache_bytes: slots(rows) * self.sizes.slot,
            }
        };
        SHARES.iter().map(line).collect()
    }

    fn plan(&self, cache: &Cache, optimum: &Point, one_more_set: OneMore) -> Result<Plan, Failure> {
        let Self { input, shape, sizes, asked, .. } = self;
        let lookups = asked.lookups_of(optimum.batch_samples);
        let (bus, none) = (asked.bus(&input.skew), Pinned::none(&input.skew));
        let cache_rows = cache.slots().min(input.rows.into());
        let (epoch, epoch_without_cache) = (bus.epoch(&cache.pinned, lookups), bus.epoch(&none, lookups));
        let saved = epoch_without_cache.total() - epoch.total();
        let load_bytes = cache.pinned.rows() * sizes.record as f64;
        let device_bytes = shape.device(cache_rows as u32, lookups as u32)?;
        if device_bytes > self.bytes {
            output::note(&format!(
                "the group takes {} of device memory ({} B a lookup), more than the budget of {}; give more, or make the batch smaller",
                in_units(device_bytes as f64),
                sizes.lookup,
                in_units(self.bytes as f64)
            ));
        }
        Ok(Plan {
            cache_rows,
            cache_bytes: cache.slots() * sizes.slot,
            cache_percent: 100.0 * cache_rows as f64 / f64::from(input.rows),
            pinned_rows: cache.pinned.rows(),
            without_a_way: cache.left_out,
            batch_samples: optimum.batch_samples,
            batch_lookups: lookups,
            device_bytes,
            form: form(&input.skew, lookups),
            hit_rate: cache.pinned.mass(&input.skew),
            batch: bus.batch(&cache.pinned, lookups),
            epoch,
            epoch_without_cache,
            epoch_uncoalesced: bus.uncoalesced(lookups),
            load_bytes,
            load_pays_after_epochs: (saved > 0.0).then(|| load_bytes / saved),
            one_more_set,
        })
    }

    fn portions(&self, cache: &Cache, seed: u64) -> portions::Portions {
        match &self.input.from {
            From::Trace(lookups) => portions::counted(&lookups.samples(), &cache.rows, &mut Pcg64::seed_from_u64(seed)),
            From::Distribution(_) => {
                portions::expected(&self.input.skew, &cache.pinned, self.input.lookups, self.input.samples)
            }
        }
    }
}

/// Rows of the largest table that is made to verify a plan.
const MOST_ROWS: u32 = 1 << 27;

/// Most lookups that are drawn of a distribution.
const MOST_LOOKUPS: usize = 1 << 24;

impl Job {
    fn verify(&self, cache: &Cache, plan: &Plan, options: &Options, args: &Args) -> Result<Vec<verify::Run>, Failure> {
        let input = &self.input;
        if input.rows > MOST_ROWS {
            return Err(Failure::Usage(format!(
                "--verify: wanted a table of at most {MOST_ROWS} rows, found {}; verify a smaller one of the same shape",
                input.rows
            )));
        }
        let mut random = Pcg64::seed_from_u64(options.seed);
        let batch = plan.batch_lookups as usize;
        let most = |batches: u64| usize::try_from(batches).unwrap_or(usize::MAX);
        let bag = (input.lookups.round() as usize).max(1);
        let (rows, pinned, orders) = match &input.from {
            From::Trace(lookups) => {
                let batches = args.verify_batches.map_or(usize::MAX, most);
                let mut shuffled = lookups.ids.clone();
                shuffled.shuffle(&mut random);
                shuffled.truncate(batches.saturating_mul(batch));
                let mut orders = vec![verify::Order::shuffled(shuffled, batch, bag)];
                orders.extend(verify::Order::of_samples(lookups, plan.batch_samples as usize, batches, &mut random));
                (cache.rows.clone(), cache.pinned.clone(), orders)
            }
            From::Distribution(distribution) => {
                // The rows are made, so who is pinned is known; row i is the i-th hottest.
                let rows = cache.rows_of(input.rows);
                let ranks: Vec<usize> = rows.iter().map(|&row| row as usize).collect();
                let pinned = Pinned::known(&input.skew, &ranks);
                let batches = args
                    .verify_batches
                    .unwrap_or_else(|| verify::enough(&sight(&input.skew, &pinned, batch as u64), batch as u64));
                let shuffled = distribution.draw(most(batches).saturating_mul(batch).min(MOST_LOOKUPS), &mut random)?;
                (rows, pinned, vec![verify::Order::shuffled(shuffled, batch, bag)])
            }
        };
        let shape = Shape { dim: args.verify_dim.unwrap_or(self.shape.dim), ..self.shape };
        let job = verify::Job {
            shape,
            cache_rows: cache.slots().min(input.rows.into()) as u32,
            share: args.pinned_ways,
            rows: &rows,
            skew: &input.skew,
            pinned: &pinned,
            backend: options.backend,
            seed: options.group_seed(),
        };
        verify::run(&job, &orders)
    }
}
