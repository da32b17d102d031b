//! `hotrow simulate`: hit rates of traces for sizes x ways x policies (Yang 2020, Tables 6 and 10).

use crate::failure::{Failure, ensure_usage};
use crate::names::{self, ADMITTING, list, one_of};
use crate::options::{Backend, Options, TraceArgs, generated_trace, read, whole};
use crate::output;
use crate::plot::{Chart, Series, Style};
use crate::progress::Progress;
use crate::report::object::{self, Field, Object, fields};
use crate::simulate_gpu::gpu;
use crate::trace::{self, Trace};
use hotrow::{Context, Policy, adapter};
use hotrow_plan::simulate::{Geometry, SimulatedCounters, Simulator};
use rayon::prelude::*;
use std::path::PathBuf;

/// The most ways of a set; 0 makes the cache fully associative.
const MAX_WAYS: u32 = 1 << 20;

/// Most accesses in a batch (SPEC 3).
const MAX_BATCH: u32 = 1 << 30;

/// Accesses between two reports of progress.
const REPORT: usize = 1 << 16;

/// Simulate hit rates of traces for cache sizes x ways x policies
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Traces: files (.u32, .npy, CSV, text, Criteo's, each also .gz or .zst), names in the data folder, or generated (zipf:rows=..,s=..[,n=..], uniform:rows=..[,n=..], meta2021[:rows=..,n=..])
    #[arg(long, value_name = "T[,T]")]
    trace: Vec<String>,
    #[command(flatten)]
    reading: TraceArgs,
    /// Replacement policies
    #[arg(long, value_delimiter = ',', default_value = list(ADMITTING), value_parser = one_of(Policy::ALL))]
    policy: Vec<Policy>,
    /// Ways of a set, 0 for fully associative
    #[arg(long, value_name = "N[,N]", value_delimiter = ',', default_values_t = [32], allow_negative_numbers = true,
          value_parser = whole(0..=MAX_WAYS))]
    ways: Vec<u32>,
    /// Cache sizes in percent of the trace's distinct rows
    #[arg(long, value_name = "P[,P]", value_delimiter = ',', default_value = "1,5,10",
          allow_negative_numbers = true, value_parser = share)]
    cache_percent: Vec<f64>,
    /// Accesses in a batch
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true,
          value_parser = whole(1..=MAX_BATCH))]
    batch: u32,
    /// Write the results to FILE as CSV
    #[arg(long, value_name = "FILE", value_parser = output::file())]
    csv: Option<PathBuf>,
    /// Draw STEM.svg and STEM.png: hit rate against cache size
    #[arg(long, value_name = "STEM", value_parser = output::stem())]
    plot: Option<PathBuf>,
}

fn share(text: &str) -> Result<f64, String> {
    read(text, "a number above 0 and at most 100", |percent: &f64| *percent > 0.0 && *percent <= 100.0)
}

pub(crate) fn run(options: &Options, args: &Args) -> Result<(), Failure> {
    let mut traces: Vec<String> = args.trace.iter().flat_map(|text| trace::split_list(text)).collect();
    if args.trace.is_empty() {
        traces.push(generated_trace("playing generated data", "accesses"));
    }
    ensure_usage!(!traces.is_empty(), "--trace: wanted at least one trace, found none");
    if options.backend == Backend::Gpu
        && let Some(ways) = args.ways.iter().find(|&&ways| ways != 32)
    {
        return Err(Failure::Usage(format!(
            "--ways: wanted 32 with --backend gpu, found {ways}; its kernels know no other, use --backend cpu"
        )));
    }
    let files = options.trace_files(&traces);
    output::check_files(options.json.as_deref(), args.csv.as_deref(), args.plot.as_slice(), &files)?;
    // `auto` means the CPU here, since it simulates any number of ways.
    let context = match options.backend {
        Backend::Gpu => Some(adapter::open_best(adapter::Wanted::Any)?),
        Backend::Auto | Backend::Cpu => None,
    };
    let (mut outcomes, mut tables) = (Vec::new(), String::new());
    for text in &traces {
        let trace = options.trace(text, &args.reading)?;
        if context.is_some() && trace.tables.is_some() {
            output::note(&format!("note: {}: hits of each table are counted with --backend cpu", trace.name));
        }
        let found = play_all(context.as_ref(), args, &trace)?;
        by_table(&found).iter().for_each(|text| tables = format!("{tables}\n{text}"));
        outcomes.extend(found);
    }
    options.write_json(&outcomes)?;
    if let Some(path) = &args.csv {
        object::write_csv(path, &outcomes)?;
    }
    if let Some(stem) = &args.plot {
        chart(&outcomes, args, traces.len() > 1).write(stem)?;
    }
    output::print(&format!("{}{tables}", object::table(&outcomes)))?;
    Ok(())
}

#[derive(Clone, Copy, Debug)]
struct Choice {
    policy: Policy,
    ways: u32,
    percent: f64,
}

impl Args {
    /// Every configuration, in the order of the options; sizes vary fastest.
    fn choices(&self) -> Vec<Choice> {
        let mut choices = Vec::new();
        for &policy in &self.policy {
            for &ways in &self.ways {
                choices.extend(self.cache_percent.iter().map(|&percent| Choice { policy, ways, percent }));
            }
        }
        choices
    }
}

/// Simulates every configuration over one trace.
fn play_all(context: Option<&Context>, args: &Args, trace: &Trace) -> anyhow::Result<Vec<Object>> {
    let choices = args.choices();
    let progress = Progress::new(&trace.name, (choices.len() * trace.ids.len()) as u64);
    let play_one = |choice: &Choice| play(context, args.batch, trace, *choice, &progress);
    // There is one device; the CPU runs as many configurations at a time as it has cores.
    match context {
        Some(_) => choices.iter().map(play_one).collect(),
        None => choices.par_iter().map(play_one).collect(),
    }
}

/// Simulates a configuration. The result has the schema of `--json` and `--csv` (SPEC 9).
fn play(
    context: Option<&Context>,
    batch: u32,
    trace: &Trace,
    Choice { policy, ways, percent }: Choice,
    progress: &Progress,
) -> anyhow::Result<Object> {
    let shape = Geometry::of_percent(trace.distinct.into(), percent, ways)?;
    let (seen, tables) = match context {
        Some(context) => (gpu(context, trace, policy, shape, batch as usize, progress)?, Vec::new()),
        None => cpu(trace, policy, shape, batch as usize, progress)?,
    };
    let room = u64::from(shape.sets) * u64::from(shape.ways);
    if room != u64::from(shape.slots) {
        output::note(&format!(
            "note: {percent} % of {} are {} slots, but whole sets of {} ways make it {room}",
            trace.name, shape.slots, shape.ways
        ));
    }
    let found = Object::default()
        .with("trace", trace.name.as_str())
        .with("policy", policy.name())
        .with("ways", ways)
        .with("cache_percent", percent)
        .and(fields!(shape; sets, slots))
        .with("batch", batch)
        .and(fields!(seen; accesses, hits))
        .with("hit_rate", seen.hit_rate())
        .and(fields!(seen; unique, unique_misses, admitted, conflicts, evictions));
    if tables.is_empty() {
        return Ok(found);
    }
    let each = tables.into_iter().enumerate().filter(|(_, [accesses, _])| *accesses > 0);
    let line = |(table, [accesses, hits]): (usize, [u64; 2])| {
        let rate = hits as f64 / accesses as f64;
        Object::default().with("table", table).with("accesses", accesses).with("hits", hits).with("hit_rate", rate)
    };
    Ok(found.with("tables", each.map(line).collect::<Field>()))
}

/// Hit rates of a trace's tables, with a column for each configuration.
fn by_table(outcomes: &[Object]) -> Option<String> {
    let tables = outcomes.first().map(|outcome| outcome.list("tables")).filter(|tables| !tables.is_empty())?;
    let shape = |outcome: &Object| {
        let (ways, percent) = (outcome.number("ways"), outcome.number("cache_percent"));
        format!("{} {ways} ways {percent} %", outcome.text("policy"))
    };
    let title = format!("table of {}", outcomes[0].text("trace"));
    let mut text = output::table([title, "accesses".to_owned()].into_iter().chain(outcomes.iter().map(shape)), 0);
    for (at, table) in tables.iter().enumerate() {
        let rate = |outcome: &Object| format!("{:.3} %", 100.0 * outcome.list("tables")[at].number("hit_rate"));
        let words = [table.number("table"), table.number("accesses")].map(|number| number.to_string());
        text.add_row(words.into_iter().chain(outcomes.iter().map(rate)));
    }
    Some(text.to_string())
}

/// Plays a trace. With its counters come the accesses and hits of each table, if it has tables.
fn cpu(
    trace: &Trace,
    policy: Policy,
    shape: Geometry,
    batch: usize,
    progress: &Progress,
) -> anyhow::Result<(SimulatedCounters, Vec<[u64; 2]>)> {
    let mut cache = Simulator::new(shape.sets, shape.ways, policy)?;
    if policy == Policy::Static {
        cache.pin(&trace.hottest(shape.slots as usize), shape.ways);
    }
    let mut tables = trace.tables.as_ref().map_or(Vec::new(), |_| vec![[0; 2]; 256]);
    let mut rest = trace.tables.as_deref().unwrap_or_default();
    // Each stretch between two reports has whole batches.
    for stretch in trace.ids.chunks(batch * (REPORT / batch).max(1)) {
        for ids in stretch.chunks(batch) {
            let (of, behind) = rest.split_at(rest.len().min(ids.len()));
            rest = behind;
            for (&table, &id) in of.iter().zip(ids) {
                let [accesses, hits] = &mut tables[usize::from(table)];
                *accesses += 1;
                *hits += u64::from(cache.holds(id));
            }
            cache.step(ids);
        }
        progress.advance(stretch.len() as u64);
    }
    Ok((cache.counters(), tables))
}

/// A chart with a line for each trace, number of ways and policy. Colours tell traces and ways apart; LFU is dashed.
fn chart(outcomes: &[Object], args: &Args, several_traces: bool) -> Chart {
    let mut chart = Chart::new("Cache size (% of rows)", "Hit rate (%)");
    let of_trace = match outcomes.first() {
        Some(outcome) if !several_traces => format!(": {}", outcome.text("trace")),
        _ => String::new(),
    };
    let each = match args.batch {
        1 => "one access at a time".to_owned(),
        batch => format!("batches of {batch} accesses"),
    };
    chart.title = format!("Hit rate by cache size{of_trace}, {each}");
    let ends = |values: &mut dyn Iterator<Item = f64>| {
        values.fold((f64::INFINITY, 0.0_f64), |(least, most), value| (least.min(value), most.max(value)))
    };
    // The axis ends at whole tens around the data, since the differences between ways are small.
    let (low, high) = ends(&mut outcomes.iter().map(|outcome| 100.0 * outcome.number("hit_rate")));
    let low = ((low / 10.0).floor() * 10.0).min(90.0);
    chart.y_range = Some((low, ((high / 10.0).ceil() * 10.0).max(low + 10.0)));
    let (least, most) = ends(&mut args.cache_percent.iter().copied());
    if most > 20.0 * least {
        chart.log_x = true;
        chart.x_range = Some((0.8 * least, 1.25 * most));
    }
    let sizes = args.cache_percent.len();
    let curves = args.choices().into_iter().step_by(sizes).cycle().zip(outcomes.chunks(sizes));
    let mut colours = Vec::new();
    for (Choice { policy, ways, .. }, outcomes) in curves {
        let trace = outcomes[0].text("trace");
        // Static has a colour of its own, since it would look like LFU otherwise.
        let key = (trace, ways, policy == Policy::Static);
        let colour = colours.iter().position(|known| *known == key).unwrap_or(colours.len());
        if colour == colours.len() {
            colours.push(key);
        }
        let prefix = if several_traces { format!("{trace}: ") } else { String::new() };
        let ways = match ways {
            0 => "fully associative".to_owned(),
            1 => "1 way".to_owned(),
            ways => format!("{ways} ways"),
        };
        let label = format!("{prefix}{}, {ways}", names::title(policy));
        let point = |outcome: &Object| (outcome.number("cache_percent"), 100.0 * outcome.number("hit_rate"));
        let mut points: Vec<(f64, f64)> = outcomes.iter().map(point).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let style = Style { colour, dashed: policy == Policy::Lfu, markers: true };
        chart.series.push(Series { label, points, style, spread: Vec::new() });
    }
    chart
}
