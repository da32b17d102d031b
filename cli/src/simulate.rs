//! `hotrow simulate`: hit rates of traces for sizes x ways x policies (Yang 2020, Tables 6 and 10).

use crate::failure::Failure;
use crate::names::{self, ADMITTING, one_of};
use crate::object::{self, Object};
use crate::options::{Backend, Options};
use crate::output;
use crate::plot::{Chart, Series};
use crate::progress::Progress;
use crate::simulate_gpu::gpu;
use crate::trace::{self, Trace};
use hotrow::simulate::{Geometry, SimulatedCounters, Simulator};
use hotrow::{Context, Policy, adapter};
use rayon::prelude::*;
use std::path::PathBuf;

/// What is played when no trace is given.
const GENERATED: &str = "zipf:rows=100000,s=1.05,n=1000000";

/// Most ways a set can be given; 0 serves beyond.
const MAX_WAYS: i64 = 1 << 20;

/// Most accesses in a batch (SPEC 3.3).
const MAX_BATCH: i64 = 1 << 30;

/// Accesses between two reports of progress.
const REPORT: usize = 1 << 16;

/// Hit rates of traces for cache sizes x ways x policies
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Traces: files, names in the data folder, or generated (zipf:rows=..,s=..[,n=..], uniform:rows=..[,n=..],
    /// meta2021[:rows=..,n=..])
    #[arg(long, value_name = "T[,T]")]
    trace: Vec<String>,
    /// Replacement policies
    #[arg(long, value_delimiter = ',', default_values_t = ADMITTING, value_parser = one_of(Policy::ALL))]
    policy: Vec<Policy>,
    /// Ways of a set, 0 for fully associative
    #[arg(long, value_name = "N[,N]", value_delimiter = ',', default_values_t = [32], allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(0..=MAX_WAYS))]
    ways: Vec<u32>,
    /// Cache sizes in percent of the trace's distinct rows
    #[arg(long, value_name = "P[,P]", value_delimiter = ',', default_values_t = [1.0, 5.0, 10.0],
          allow_negative_numbers = true, value_parser = percent)]
    cache_percent: Vec<f64>,
    /// Accesses in a batch
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=MAX_BATCH))]
    batch: u32,
    /// Write the results to FILE as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draw STEM.svg and STEM.png: hit rate against cache size
    #[arg(long, value_name = "STEM")]
    plot: Option<PathBuf>,
}

fn percent(text: &str) -> Result<f64, String> {
    match text.trim().parse() {
        Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(percent),
        _ => Err("wanted a number above 0 and at most 100".to_owned()),
    }
}

/// The results of one policy and number of ways over a trace, by size of the cache.
struct Curve {
    trace: String,
    policy: Policy,
    ways: u32,
    /// In the order of the sizes.
    outcomes: Vec<Outcome>,
}

/// One configuration and its outcome.
struct Outcome {
    cache_percent: f64,
    shape: Geometry,
    batch: u32,
    seen: SimulatedCounters,
}

impl Curve {
    /// The schema of `--json` and `--csv` (SPEC 9).
    fn objects(&self) -> impl Iterator<Item = Object> {
        self.outcomes.iter().map(|Outcome { cache_percent, shape, batch, seen }| {
            Object::default()
                .with("trace", self.trace.as_str())
                .with("policy", self.policy.name())
                .with("ways", self.ways)
                .with("cache_percent", *cache_percent)
                .with("sets", shape.sets)
                .with("slots", shape.slots)
                .with("batch", *batch)
                .with("accesses", seen.accesses)
                .with("hits", seen.hits)
                .with("hit_rate", seen.hit_rate())
                .with("unique", seen.unique)
                .with("unique_misses", seen.unique_misses)
                .with("admitted", seen.admitted)
                .with("conflicts", seen.conflicts)
                .with("evictions", seen.evictions)
        })
    }

    /// Sizes and hit rates, both in percent, in ascending order.
    fn points(&self) -> Vec<(f64, f64)> {
        let point = |outcome: &Outcome| (outcome.cache_percent, 100.0 * outcome.seen.hit_rate());
        let mut points: Vec<(f64, f64)> = self.outcomes.iter().map(point).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    }
}

/// Runs the subcommand.
pub(crate) fn run(options: &Options, args: &Args) -> Result<(), Failure> {
    let mut traces: Vec<String> = args.trace.iter().flat_map(|text| trace::split_list(text)).collect();
    if args.trace.is_empty() {
        output::note(&format!(
            "no --trace: playing generated data, {GENERATED}; name a file, or a trace of --data DIR, for real accesses"
        ));
        traces.push(GENERATED.to_owned());
    }
    if traces.is_empty() {
        return Err(Failure::Usage("--trace: wanted at least one trace, found none".to_owned()));
    }
    if options.backend == Backend::Gpu
        && let Some(ways) = args.ways.iter().find(|&&ways| ways != 32)
    {
        return Err(Failure::Usage(format!(
            "--ways: wanted 32 with --backend gpu, found {ways}; its kernels know no other, use --backend cpu"
        )));
    }
    output::check_file("--csv", args.csv.as_deref())?;
    output::check_plot("--plot", args.plot.as_deref())?;
    // `auto` is the CPU here: it knows any number of ways.
    let context = match options.backend {
        Backend::Gpu => Some(adapter::open_best(adapter::Wanted::Any)?),
        Backend::Auto | Backend::Cpu => None,
    };
    let mut curves = Vec::new();
    for text in &traces {
        let trace = options.trace(text)?;
        curves.extend(play_all(context.as_ref(), args, &trace)?);
    }
    let objects: Vec<Object> = curves.iter().flat_map(Curve::objects).collect();
    if let Some(path) = &options.json {
        output::write_json(path, &objects)?;
    }
    if let Some(path) = &args.csv {
        object::write_csv(path, &objects)?;
    }
    if let Some(stem) = &args.plot {
        chart(&curves, traces.len() > 1, args.batch).write(stem)?;
    }
    output::print(&object::table(&objects))?;
    Ok(())
}

/// Every configuration over one trace, in the order the options name them.
fn play_all(context: Option<&Context>, args: &Args, trace: &Trace) -> anyhow::Result<Vec<Curve>> {
    let curves = args.policy.iter().flat_map(|&policy| args.ways.iter().map(move |&ways| (policy, ways)));
    let sizes = &args.cache_percent;
    let choices: Vec<_> = curves.clone().flat_map(|curve| sizes.iter().map(move |&percent| (curve, percent))).collect();
    let progress = Progress::new(&trace.name, (choices.len() * trace.ids.len()) as u64);
    let play_one = |&((policy, ways), percent)| play(context, args.batch, trace, policy, ways, percent, &progress);
    // A device is one; the CPU plays as many configurations at a time as it has cores.
    let outcomes: Vec<Outcome> = match context {
        Some(_) => choices.iter().map(play_one).collect::<anyhow::Result<_>>()?,
        None => choices.par_iter().map(play_one).collect::<anyhow::Result<_>>()?,
    };
    let mut outcomes = outcomes.into_iter();
    let curve = |(policy, ways)| Curve {
        trace: trace.name.clone(),
        policy,
        ways,
        outcomes: outcomes.by_ref().take(sizes.len()).collect(),
    };
    Ok(curves.map(curve).collect())
}

fn play(
    context: Option<&Context>,
    batch: u32,
    trace: &Trace,
    policy: Policy,
    ways: u32,
    cache_percent: f64,
    progress: &Progress,
) -> anyhow::Result<Outcome> {
    let shape = Geometry::of_percent(trace.distinct.into(), cache_percent, ways)?;
    let seen = match context {
        Some(context) => gpu(context, trace, policy, shape, batch as usize, progress)?,
        None => cpu(trace, policy, shape, batch as usize, progress)?,
    };
    let room = u64::from(shape.sets) * u64::from(shape.ways);
    if room != u64::from(shape.slots) {
        output::note(&format!(
            "note: {cache_percent} % of {} are {} slots, but whole sets of {} ways make it {room}",
            trace.name, shape.slots, shape.ways
        ));
    }
    Ok(Outcome { cache_percent, shape, batch, seen })
}

/// The plain simulator.
fn cpu(
    trace: &Trace,
    policy: Policy,
    shape: Geometry,
    batch: usize,
    progress: &Progress,
) -> anyhow::Result<SimulatedCounters> {
    let mut cache = Simulator::new(shape.sets, shape.ways, policy)?;
    if policy == Policy::Static {
        cache.pin(&trace.hottest(shape.slots as usize), shape.ways);
    }
    // Whole batches between two reports.
    for stretch in trace.ids.chunks(batch * (REPORT / batch).max(1)) {
        for ids in stretch.chunks(batch) {
            cache.step(ids);
        }
        progress.advance(stretch.len() as u64);
    }
    Ok(cache.counters())
}

/// One line for each trace x ways x policy. The colour stands for trace and ways, dashes for LFU.
fn chart(curves: &[Curve], several_traces: bool, batch: u32) -> Chart {
    let mut chart = Chart::new("Cache size (% of rows)", "Hit rate (%)");
    let of_trace = match curves.first() {
        Some(curve) if !several_traces => format!(": {}", curve.trace),
        _ => String::new(),
    };
    let each = if batch == 1 { "one access at a time".to_owned() } else { format!("batches of {batch} accesses") };
    chart.title = format!("Hit rate by cache size{of_trace}, {each}");
    let points = || curves.iter().flat_map(Curve::points);
    // Whole tens around the data: the differences between ways are small.
    let (low, high) = points().fold((100.0_f64, 0.0_f64), |(low, high), (_, rate)| (low.min(rate), high.max(rate)));
    let low = ((low / 10.0).floor() * 10.0).min(90.0);
    chart.y_range = Some((low, ((high / 10.0).ceil() * 10.0).max(low + 10.0)));
    let sizes = points().map(|(size, _)| size);
    let (least, most) = sizes.fold((f64::INFINITY, 0.0_f64), |(least, most), size| (least.min(size), most.max(size)));
    if most > 20.0 * least {
        chart.log_x = true;
        chart.x_range = Some((0.8 * least, 1.25 * most));
    }
    let mut colours = Vec::new();
    for curve in curves {
        // Static has a colour of its own: it and LFU would both be the dashed line of their ways.
        let key = (&curve.trace, curve.ways, curve.policy == Policy::Static);
        let colour = colours.iter().position(|known| *known == key).unwrap_or(colours.len());
        if colour == colours.len() {
            colours.push(key);
        }
        let prefix = if several_traces { format!("{}: ", curve.trace) } else { String::new() };
        let ways = match curve.ways {
            0 => "fully associative".to_owned(),
            1 => "1 way".to_owned(),
            ways => format!("{ways} ways"),
        };
        let label = format!("{prefix}{}, {ways}", names::title(curve.policy));
        let dashed = curve.policy == Policy::Lfu;
        chart.series.push(Series { label, points: curve.points(), colour, dashed, markers: true, spread: Vec::new() });
    }
    chart
}
