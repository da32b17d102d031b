//! `hotrow simulate`: hit rates of traces for sizes x ways x policies (Yang 2020, Tables 6 and 10).

use crate::failure::Failure;
use crate::names::{self, ADMITTING, one_of};
use crate::options::{Backend, Options};
use crate::output;
use crate::plot::{Chart, Style};
use crate::progress::Progress;
use crate::report::{Record, Setting, Unit};
use crate::simulate_gpu::gpu;
use crate::trace::{self, Trace};
use comfy_table::Table;
use hotrow::simulate::{Geometry, SimulatedCounters, Simulator};
use hotrow::{Context, Policy, adapter};
use rayon::prelude::*;
use serde::Serialize;
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

/// One configuration and its outcome. The fields and their order are the schema of `--json` and `--csv` (SPEC 9).
#[derive(Clone, Debug, Serialize)]
struct Outcome {
    trace: String,
    #[serde(with = "names")]
    policy: Policy,
    ways: u32,
    cache_percent: f64,
    sets: u32,
    slots: u32,
    batch: u32,
    accesses: u64,
    hits: u64,
    hit_rate: f64,
    unique: u64,
    unique_misses: u64,
    admitted: u64,
    conflicts: u64,
    evictions: u64,
}

impl Outcome {
    /// The hit rate as a record; `line` names its line in the chart.
    fn record(&self, several_traces: bool, colour: u32) -> Record {
        let policy = names::title(self.policy);
        let prefix = if several_traces { format!("{}: ", self.trace) } else { String::new() };
        let setting = Setting::default()
            .with("line", &*format!("{prefix}{policy}, {}", ways_name(self.ways)))
            .with("colour", colour)
            .with("policy", policy.as_str())
            .with("cache %", self.cache_percent);
        Record::new("hit rate", self.trace.as_str(), &setting, self.hit_rate, Unit::Share)
    }
}

/// What a user chose for one run.
#[derive(Clone, Copy, Debug)]
struct Choice {
    policy: Policy,
    ways: u32,
    percent: f64,
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
    let mut outcomes = Vec::new();
    for text in &traces {
        let trace = options.trace(text)?;
        outcomes.extend(play_all(context.as_ref(), args, &trace)?);
    }
    if let Some(path) = &options.json {
        output::write_json(path, &outcomes)?;
    }
    if let Some(path) = &args.csv {
        output::write_csv(path, &outcomes)?;
    }
    if let Some(stem) = &args.plot {
        chart(&outcomes, traces.len() > 1, args.batch).write(stem)?;
    }
    output::print(&table(&outcomes).to_string())?;
    Ok(())
}

/// Every configuration over one trace, in the order the options name them.
fn play_all(context: Option<&Context>, args: &Args, trace: &Trace) -> Result<Vec<Outcome>, Failure> {
    let mut choices = Vec::new();
    for &policy in &args.policy {
        for &ways in &args.ways {
            for &percent in &args.cache_percent {
                choices.push(Choice { policy, ways, percent });
            }
        }
    }
    let progress = Progress::new(&trace.name, (choices.len() * trace.ids.len()) as u64);
    let play_one = |choice: &Choice| play(context, args.batch, trace, *choice, &progress);
    // A device is one; the CPU plays as many configurations at a time as it has cores.
    let outcomes = match context {
        Some(_) => choices.iter().map(play_one).collect::<anyhow::Result<_>>()?,
        None => choices.par_iter().map(play_one).collect::<anyhow::Result<_>>()?,
    };
    Ok(outcomes)
}

fn play(
    context: Option<&Context>,
    batch: u32,
    trace: &Trace,
    choice: Choice,
    progress: &Progress,
) -> anyhow::Result<Outcome> {
    let shape = Geometry::of_percent(trace.distinct.into(), choice.percent, choice.ways)?;
    let policy = choice.policy;
    let seen = match context {
        Some(context) => gpu(context, trace, policy, shape, batch as usize, progress)?,
        None => cpu(trace, policy, shape, batch as usize, progress)?,
    };
    let room = u64::from(shape.sets) * u64::from(shape.ways);
    if room != u64::from(shape.slots) {
        output::note(&format!(
            "note: {} % of {} are {} slots, but whole sets of {} ways make it {room}",
            choice.percent, trace.name, shape.slots, shape.ways
        ));
    }
    Ok(Outcome {
        trace: trace.name.clone(),
        policy: choice.policy,
        ways: choice.ways,
        cache_percent: choice.percent,
        sets: shape.sets,
        slots: shape.slots,
        batch,
        accesses: seen.accesses,
        hits: seen.hits,
        hit_rate: seen.hit_rate(),
        unique: seen.unique,
        unique_misses: seen.unique_misses,
        admitted: seen.admitted,
        conflicts: seen.conflicts,
        evictions: seen.evictions,
    })
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

/// How many ways, in words.
fn ways_name(ways: u32) -> String {
    match ways {
        0 => "fully associative".to_owned(),
        1 => "1 way".to_owned(),
        _ => format!("{ways} ways"),
    }
}

fn table(outcomes: &[Outcome]) -> Table {
    let header = "trace | policy | ways | cache % | sets | slots | accesses | hits | hit rate % | admitted | conflicts | evictions";
    let mut table = output::table(header.split(" | "), 2);
    for outcome in outcomes {
        table.add_row([
            outcome.trace.clone(),
            names::title(outcome.policy),
            if outcome.ways == 0 { "full".to_owned() } else { outcome.ways.to_string() },
            outcome.cache_percent.to_string(),
            outcome.sets.to_string(),
            outcome.slots.to_string(),
            outcome.accesses.to_string(),
            outcome.hits.to_string(),
            format!("{:.3}", 100.0 * outcome.hit_rate),
            outcome.admitted.to_string(),
            outcome.conflicts.to_string(),
            outcome.evictions.to_string(),
        ]);
    }
    table
}

/// One line for each trace x ways x policy. The colour stands for trace and ways, dashes for LFU.
fn chart(outcomes: &[Outcome], several_traces: bool, batch: u32) -> Chart {
    let mut chart = Chart::new("Cache size (% of rows)", "Hit rate");
    let of_trace = match outcomes.first() {
        Some(outcome) if !several_traces => format!(": {}", outcome.trace),
        _ => String::new(),
    };
    let each = if batch == 1 { "one access at a time".to_owned() } else { format!("batches of {batch} accesses") };
    chart.title = format!("Hit rate by cache size{of_trace}, {each}");
    // Whole tens around the data: the differences between ways are small.
    let rates = outcomes.iter().map(|outcome| 100.0 * outcome.hit_rate);
    let (low, high) = rates.fold((100.0_f64, 0.0_f64), |(low, high), rate| (low.min(rate), high.max(rate)));
    let low = ((low / 10.0).floor() * 10.0).min(90.0);
    chart.y_range = Some((low, ((high / 10.0).ceil() * 10.0).max(low + 10.0)));
    let sizes = outcomes.iter().map(|outcome| outcome.cache_percent);
    let (least, most) = sizes.fold((f64::INFINITY, 0.0_f64), |(least, most), size| (least.min(size), most.max(size)));
    if most > 20.0 * least {
        chart.log_x = true;
        chart.x_range = Some((0.8 * least, 1.25 * most));
    }
    // Static has a colour of its own: it and LFU would both be the dashed line of their ways.
    let key = |outcome: &Outcome| (outcome.trace.clone(), outcome.ways, outcome.policy == Policy::Static);
    let mut colours = Vec::new();
    for outcome in outcomes {
        if !colours.contains(&key(outcome)) {
            colours.push(key(outcome));
        }
    }
    let colour = |outcome| colours.iter().position(|known| *known == key(outcome)).unwrap_or(0);
    let records: Vec<Record> =
        outcomes.iter().map(|outcome| outcome.record(several_traces, colour(outcome) as u32)).collect();
    chart.lines(
        &records,
        "line",
        |record| record.setting.number("cache %"),
        |record| Style {
            colour: record.setting.number("colour").unwrap_or(0.0) as usize,
            dashed: record.is("policy", "LFU"),
            markers: true,
        },
    );
    chart
}
