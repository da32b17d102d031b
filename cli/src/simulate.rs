//! `hotrow simulate`: hit rates of traces for sizes x ways x policies (Yang 2020, Tables 6 and 10).

use clap::builder::{PossibleValuesParser, TypedValueParser};
use hotrow::{
    Batch, Context, Counters, Error, Group, GroupConfig, Mode, Policy, Pooling, Precision, adapter, prelude::*,
};
use hotrow_plan::simulate::{Best, Geometry, GeometryError, Simulator, WINDOW_WAYS};
use hotrow_report::clock::{Clock, Rounds};
use hotrow_report::failure::{Failure, ensure_usage};
use hotrow_report::names::{self, COMPARED, list};
use hotrow_report::object::{self, Field, Object, fields};
use hotrow_report::options::{Backend, MOST_ROWS, Options, TraceArgs, generated_trace, whole};
use hotrow_report::output;
use hotrow_report::plot::{Chart, Panels, Style};
use hotrow_report::progress::Progress;
use hotrow_report::spec::read;
use hotrow_report::trace::{self, Trace};
use rayon::prelude::*;
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// The most ways of a set; 0 makes the cache fully associative.
const MAX_WAYS: u32 = 1 << 20;

/// Most accesses in a batch (SPEC 3).
const MAX_BATCH: u32 = 1 << 30;

/// Number of steps submitted at a time, so that the device neither waits for the host nor falls far behind.
const STEPS: usize = 32;

/// The most rows of a table that is simulated on a GPU, where they take 2 GiB with their frequencies.
const MOST_ON_GPU: u64 = 1 << 28;

/// Accesses between two reports of progress.
const REPORT: u64 = 1 << 16;

/// Simulate hit rates of traces for cache sizes x ways x policies
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Traces: files (.u32, .u64, .npy, .oracleGeneral, CSV, text, Criteo's, each also .gz or .zst), names in the data folder, or generated (zipf:rows=..,s=..[,n=..], drift:rows=..,s=..,every=..[,n=..], uniform:rows=..[,n=..], meta2021[:rows=..,n=..])
    #[arg(long, value_name = "T[,T]")]
    trace: Vec<String>,
    #[command(flatten)]
    reading: TraceArgs,
    /// File of one byte an access, its table [default: NAME.table.u8 beside the trace, if there]
    #[arg(long, value_name = "FILE")]
    table_file: Option<PathBuf>,
    /// Rows of the table; ids are its rows [default: the distinct ids, numbered by first appearance]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole(1..=MOST_ROWS))]
    rows: Option<u32>,
    /// Replacement policies; best knows the future: the most hits that any policy has in batches of one access, a guide in larger ones
    #[arg(long, value_delimiter = ',', default_value = list(COMPARED), value_parser = kinds())]
    policy: Vec<Kind>,
    /// Window ways of a set under --policy window, fewer than its ways; 0 is LFU that ages
    #[arg(long, value_name = "N[,N]", value_delimiter = ',', default_values_t = [WINDOW_WAYS], allow_negative_numbers = true,
          value_parser = whole(0..=MAX_WAYS))]
    window_ways: Vec<u32>,
    /// Ways of a set, 0 for fully associative (slow with many slots under window)
    #[arg(long, value_name = "N[,N]", value_delimiter = ',', default_values_t = [32], allow_negative_numbers = true,
          value_parser = whole(0..=MAX_WAYS))]
    ways: Vec<u32>,
    /// Cache sizes in percent of the rows
    #[arg(long, value_name = "P[,P]", value_delimiter = ',', default_value = "1,5,10",
          allow_negative_numbers = true, value_parser = share)]
    cache_percent: Vec<f64>,
    /// Share of the cache's sets that each table has, from table 0 on, as in a group: rounded down, but at least one set; a table with 0, or behind the end of the list, has none [default: all tables share all sets]
    #[arg(long, value_name = "S[,S]", value_delimiter = ',', allow_negative_numbers = true, conflicts_with = "rows",
          value_parser = |text: &str| read(text, "a number from 0 to 1", |share: &f32| (0.0..=1.0).contains(share)))]
    cache_shares: Vec<f32>,
    /// Accesses in a batch
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true,
          value_parser = whole(1..=MAX_BATCH))]
    batch: u32,
    /// Write the results to FILE as CSV
    #[arg(long, value_name = "FILE", value_parser = output::file())]
    csv: Option<PathBuf>,
    /// Draw STEM.svg and STEM.png: hit rate against cache size, of several traces in a panel each
    #[arg(long, value_name = "STEM", value_parser = output::stem())]
    plot: Option<PathBuf>,
}

/// A policy of the cache, or the one that knows the future.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Of(Policy),
    Best,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Of(policy) => policy.fmt(f),
            Self::Best => f.write_str("best"),
        }
    }
}

fn kinds() -> impl TypedValueParser<Value = Kind> {
    let names = Policy::ALL.map(Kind::Of).into_iter().chain([Kind::Best]);
    PossibleValuesParser::new(names.map(|kind| kind.to_string())).map(|name| name.parse().map_or(Kind::Best, Kind::Of))
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
    args.check(options, traces.len())?;
    let files = [options.trace_files(&traces), args.table_file.iter().cloned().collect()].concat();
    output::check_files(options.json.as_deref(), args.csv.as_deref(), args.plot.as_slice(), &files)?;
    // `auto` means the CPU here, since it simulates any number of ways.
    let context = match options.backend {
        Backend::Gpu => Some(adapter::open_best()?),
        Backend::Auto | Backend::Cpu => None,
    };
    let (mut outcomes, mut tables) = (Vec::new(), String::new());
    for text in &traces {
        let trace = options.trace(text, &args.reading, args.table_file.as_deref())?;
        if context.is_some() && trace.tables.is_some() {
            output::note(&format!("note: {}: hits of each table are counted with --backend cpu", trace.name));
        }
        let found = play_all(context.as_ref(), args, trace)?;
        by_table(&found).iter().for_each(|text| tables = format!("{tables}\n{text}"));
        outcomes.extend(found);
    }
    options.write_json(&outcomes)?;
    if let Some(path) = &args.csv {
        object::write_csv(path, &outcomes)?;
    }
    if let Some(stem) = &args.plot {
        draw(&outcomes, args, traces.len(), stem)?;
    }
    output::print(&format!("{}{tables}", object::table(&outcomes)))?;
    Ok(())
}

#[derive(Clone, Copy, Debug)]
struct Choice {
    kind: Kind,
    window_ways: u32,
    ways: u32,
    percent: f64,
}

impl Args {
    const WINDOW: Kind = Kind::Of(Policy::Window);

    /// Refuses options that do not go together.
    fn check(&self, options: &Options, traces: usize) -> Result<(), Failure> {
        ensure_usage!(
            self.table_file.is_none() || traces == 1,
            "--table-file: wanted one trace beside it, found {traces}; run the command for each"
        );
        ensure_usage!(
            options.backend != Backend::Gpu || !self.policy.contains(&Kind::Best),
            "--policy: wanted one that kernels have with --backend gpu, found best; use --backend cpu"
        );
        ensure_usage!(
            options.backend != Backend::Gpu || self.cache_shares.is_empty(),
            "--cache-shares: wanted the backend cpu beside it, found gpu; leave --backend out"
        );
        let sum: f64 = self.cache_shares.iter().map(|&share| f64::from(share)).sum();
        ensure_usage!(
            (..=1.0 + 1e-6).contains(&sum),
            "--cache-shares: wanted shares whose sum is at most 1, found a sum of {}; give some tables less",
            sum as f32
        );
        let fewest = self.ways.iter().copied().filter(|&ways| ways > 0).min().unwrap_or(u32::MAX);
        match self.window_ways.iter().find(|&&window| window >= fewest) {
            Some(window) if self.policy.contains(&Self::WINDOW) => Err(Failure::Usage(format!(
                "--window-ways: wanted fewer than the {fewest} ways of a set, found {window}; ask for fewer, or for more --ways"
            ))),
            _ => Ok(()),
        }
    }

    /// Every configuration, in the order of the options; sizes vary fastest.
    fn choices(&self) -> Vec<Choice> {
        let mut choices = Vec::new();
        for &kind in &self.policy {
            for &window_ways in if kind == Self::WINDOW { &self.window_ways[..] } else { &[0] } {
                for &ways in &self.ways {
                    let choice = |&percent: &f64| Choice { kind, window_ways, ways, percent };
                    choices.extend(self.cache_percent.iter().map(choice));
                }
            }
        }
        choices
    }
}

/// Makes the ids linear rows, numbered by first appearance, or leaves them if the rows are given. Returns the rows of each table; of one without shares.
fn number(trace: &mut Trace, args: &Args) -> Result<Vec<u32>, Failure> {
    let name = &trace.name;
    if let Some(rows) = args.rows {
        let Some(at) = trace.ids.iter().position(|&id| id >= rows) else { return Ok(vec![rows]) };
        let id = trace.ids[at];
        return Err(Failure::Usage(format!(
            "--rows: wanted more than {id}, the id at access {at} of {name}, found {rows}; give more, or none to number ids"
        )));
    }
    let shares = &args.cache_shares;
    let tables = trace.tables.as_deref().filter(|_| !shares.is_empty()).unwrap_or_default();
    let found = tables.iter().max().map_or(0, |&last| usize::from(last) + 1);
    ensure_usage!(
        shares.is_empty() || found > 0,
        "--cache-shares: wanted the table of each access of {name}, found none; give them with --table-file, or in NAME.table.u8 beside the trace"
    );
    ensure_usage!(
        shares.len() <= found.max(1),
        "--cache-shares: wanted at most one for each of the {found} tables of {name}, found {}; give fewer",
        shares.len()
    );
    let (mut rows, mut numbers) = (vec![0; found.max(1)], HashMap::new());
    let of_access = |at: usize| tables.get(at).copied().map_or(0, usize::from);
    for (at, id) in trace.ids.iter_mut().enumerate() {
        let rows: &mut u32 = &mut rows[of_access(at)];
        *id = *numbers.entry((of_access(at) as u64) << 32 | u64::from(*id)).or_insert_with(|| {
            *rows += 1;
            *rows - 1
        });
    }
    let bases: Vec<u32> = rows.iter().scan(0, |end, &rows| Some(std::mem::replace(end, *end + rows.max(1)))).collect();
    trace.ids.iter_mut().enumerate().for_each(|(at, id)| *id += bases[of_access(at)]);
    Ok(rows)
}

/// Simulates every configuration over one trace.
fn play_all(context: Option<&Context>, args: &Args, trace: Trace) -> Result<Vec<Object>, Failure> {
    let (choices, name, accesses) = (args.choices(), trace.name.clone(), trace.ids.len() * args.choices().len());
    let mut trace = trace;
    let tables = number(&mut trace, args)?;
    let hottest = trace.hottest(usize::MAX);
    let job = Job { context, args, trace, tables, hottest };
    for &choice in &choices {
        let Choice { kind, window_ways, percent, .. } = choice;
        let shape = job.shape(choice)?;
        ensure_usage!(
            kind != Args::WINDOW || window_ways < shape.ways || u64::from(shape.slots) >= job.rows(),
            "--window-ways: wanted fewer than the {} ways of the one set that {percent} % of {name} are, found {window_ways}; ask for fewer",
            shape.ways
        );
        let sets = Simulator::new(&job.config(choice, Policy::Lru)?).map_err(|error| match error {
            Error::Config { field: "cache_rows", wanted, found } if !args.cache_shares.is_empty() => Failure::Usage(format!(
                "--cache-shares: wanted a cache of {wanted}, found {found} rows in sets of {} in {percent} % of {name}; ask for a larger cache, \
                 for fewer --ways, or for a share of 0 for tables of little use",
                shape.ways
            )),
            error => error.into(),
        })?;
        if sets.sets() < shape.sets && (kind, window_ways) == (choices[0].kind, choices[0].window_ways) {
            output::note(&format!(
                "note: {} of the {} sets of {percent} % of {name} are in no table's share",
                shape.sets - sets.sets(),
                shape.sets
            ));
        }
    }
    let progress = Progress::new(&name, accesses as u64);
    let play_one = |choice: &Choice| job.play(*choice, &progress);
    // There is one device; the CPU runs as many configurations at a time as it has cores.
    let played: Vec<Object> = match context {
        Some(_) => choices.iter().map(play_one).collect::<anyhow::Result<_>>(),
        None => choices.par_iter().map(play_one).collect(),
    }?;
    let sizes = args.cache_percent.len() * args.ways.len();
    let rate = |kind: Kind, at: usize| {
        let of = choices.iter().position(|choice| choice.kind == kind).map(|first| first + at % sizes);
        of.map(|of| played[of].number("hit_rate"))
    };
    let outcome = |(at, found): (usize, &Object)| {
        let choice = choices[at];
        let window =
            args.policy.contains(&Args::WINDOW).then(|| (choice.kind == Args::WINDOW).then_some(choice.window_ways));
        let [lru, lfu, best] = [Kind::Of(Policy::Lru), Kind::Of(Policy::Lfu), Kind::Best].map(|kind| rate(kind, at));
        let closed = lru.zip(lfu).zip(best).map(|((lru, lfu), best)| {
            let from = lru.max(lfu);
            (best > from).then(|| (found.number("hit_rate") - from) / (best - from))
        });
        let found = closed.into_iter().fold(found.clone(), |found, closed| found.with("gap_closed_share", closed));
        window.into_iter().fold(found, |found, window| found.with("window_ways", window))
    };
    Ok(played.iter().enumerate().map(outcome).collect())
}

/// A trace to be played.
struct Job<'a> {
    context: Option<&'a Context>,
    args: &'a Args,
    /// In linear rows.
    trace: Trace,
    /// The rows of each table; of one without shares.
    tables: Vec<u32>,
    /// The rows, most used first.
    hottest: Vec<u32>,
}

impl Job<'_> {
    fn rows(&self) -> u64 {
        self.tables.iter().map(|&rows| u64::from(rows)).sum()
    }

    fn shape(&self, Choice { percent, ways, .. }: Choice) -> Result<Geometry, GeometryError> {
        Geometry::of_percent(self.rows(), percent, ways)
    }

    /// The group whose cache is played.
    fn config(&self, choice: Choice, policy: Policy) -> Result<GroupConfig, GeometryError> {
        let Geometry { slots, ways, .. } = self.shape(choice)?;
        // A table without accesses gets a row, since a group has no empty ones, and no sets.
        let rows = self.tables.iter().map(|&rows| rows.max(1)).collect();
        let share = |(&share, &rows): (&f32, &u32)| if rows == 0 { 0.0 } else { share };
        let mut config =
            GroupConfig::new(&[1], 1).with_tables(rows).with_cache_rows(slots).with_ways(ways).with_policy(policy);
        config.cache_shares = self.args.cache_shares.iter().zip(&self.tables).map(share).collect();
        Ok(config.with_window_ways(choice.window_ways.min(ways - 1)))
    }

    /// Simulates a configuration. The result has the schema of `--json` and `--csv` (SPEC 9).
    fn play(&self, choice: Choice, progress: &Progress) -> anyhow::Result<Object> {
        let Choice { kind, ways, percent, .. } = choice;
        let (name, shape) = (&self.trace.name, self.shape(choice)?);
        // Of each table the hottest rows, as many as its sets have slots.
        let mut pinned = Simulator::new(&self.config(choice, Policy::Static)?)?;
        let sets: Vec<u32> = (0..self.tables.len()).map(|table| pinned.sets_of(table)).collect();
        let mut room: Vec<u32> = sets.iter().map(|sets| sets.saturating_mul(shape.ways).min(shape.slots)).collect();
        let ends: Vec<u32> = self
            .tables
            .iter()
            .scan(0, |end, &rows| {
                *end += rows.max(1);
                Some(*end)
            })
            .collect();
        let mut hottest = self.hottest.clone();
        hottest.retain(|&row| {
            let room = &mut room[ends.partition_point(|&end| end <= row)];
            *room > 0 && {
                *room -= 1;
                true
            }
        });
        let no_way = pinned.pin(&hottest, shape.ways).len();
        drop(pinned);
        let mut tables = [[0; 2]; 256];
        let seen = match (self.context, kind) {
            (Some(context), Kind::Of(policy)) => {
                self.on_gpu(context, &self.config(choice, policy)?, &hottest, progress)?
            }
            _ => self.on_cpu(choice, &hottest, progress, &mut tables)?,
        };
        let room = u64::from(shape.sets) * u64::from(shape.ways);
        if room != u64::from(shape.slots) && u64::from(shape.slots) < self.rows() {
            output::note(&format!(
                "note: {percent} % of {name} are {} slots, but whole sets of {} ways make it {room}",
                shape.slots, shape.ways
            ));
        }
        let found = Object::default()
            .with("trace", name.as_str())
            .with("policy", kind.to_string())
            .with("ways", ways)
            .with("cache_percent", percent)
            .and(fields!(shape; sets, slots))
            .with("no_way_share", no_way as f64 / hottest.len().max(1) as f64)
            .with("batch", self.args.batch)
            .and(fields!(seen; accesses, hits))
            .with("hit_rate", seen.hit_rate())
            .and(fields!(seen; unique, unique_misses, admitted, conflicts, evictions));
        let each = tables.into_iter().enumerate().filter(|(_, [accesses, _])| *accesses > 0);
        let line = |(table, [accesses, hits]): (usize, [u64; 2])| {
            let rate = hits as f64 / accesses as f64;
            let found = Object::default().with("table", table).with("accesses", accesses).with("hits", hits);
            let sets = sets.get(table).filter(|_| !self.args.cache_shares.is_empty()).copied();
            sets.into_iter().fold(found.with("hit_rate", rate), |found, sets| found.with("sets", sets))
        };
        let each: Vec<Object> = each.map(line).collect();
        Ok(if each.is_empty() { found } else { found.with("tables", each.into_iter().collect::<Field>()) })
    }

    fn batches(&self) -> impl DoubleEndedIterator<Item = &[u32]> {
        self.trace.ids.chunks(self.args.batch as usize)
    }

    /// Plays the trace. Adds the accesses and hits of each table, if the trace has tables.
    fn on_cpu(
        &self,
        choice: Choice,
        hottest: &[u32],
        progress: &Progress,
        tables: &mut [[u64; 2]; 256],
    ) -> anyhow::Result<Counters> {
        let mut rest = self.trace.tables.as_deref().unwrap_or_default();
        let mut played = 0;
        let mut count = |ids: &[u32], holds: &dyn Fn(u32) -> bool| {
            let (of, behind) = rest.split_at(rest.len().min(ids.len()));
            rest = behind;
            for (&table, &id) in of.iter().zip(ids) {
                let [accesses, hits] = &mut tables[usize::from(table)];
                *accesses += 1;
                *hits += u64::from(holds(id));
            }
            played += ids.len() as u64;
            if played >= REPORT {
                progress.advance(std::mem::take(&mut played));
            }
        };
        Ok(match choice.kind {
            Kind::Of(policy) => {
                let mut cache = Simulator::new(&self.config(choice, policy)?)?;
                if !policy.facts().admits {
                    cache.pin(hottest, u32::MAX);
                }
                for ids in self.batches() {
                    count(ids, &|id| cache.holds(id));
                    cache.step(ids);
                }
                cache.counters()
            }
            Kind::Best => {
                let mut cache = Best::new(self.batches(), &self.config(choice, Policy::Lru)?)?;
                for ids in self.batches() {
                    count(ids, &|id| cache.holds(id));
                    cache.step(ids);
                }
                cache.counters()
            }
        })
    }

    /// Plays the trace through the real kernels, with one FP32 value a row.
    fn on_gpu(
        &self,
        context: &Context,
        config: &GroupConfig,
        hottest: &[u32],
        progress: &Progress,
    ) -> anyhow::Result<Counters> {
        let rows = self.rows();
        anyhow::ensure!(
            rows <= MOST_ON_GPU,
            "--backend gpu: wanted a table of at most {MOST_ON_GPU} rows, found {rows}; use --backend cpu"
        );
        let config = config.clone().with_precision(Precision::Fp32).with_forward_only(true).with_pooling(Pooling::None);
        let mut group = Group::new(context, config)?;
        if !group.config().policy.facts().admits {
            group.pin(hottest, group.config().ways)?;
        }
        let (clock, batch, ids) = (Clock::new(context, Rounds::ONE), self.args.batch as usize, &self.trace.ids);
        let longest = batch.min(ids.len()) as u32;
        let offsets = clock.storage(&(0..=longest).collect::<Vec<_>>());
        let outputs = clock.storage(&vec![0; longest as usize]);
        for stretch in ids.chunks(batch.saturating_mul(STEPS)) {
            let mut encoder = clock.encoder();
            for ids in stretch.chunks(batch) {
                let indices = clock.storage(ids);
                let one = Batch {
                    indices: Some(indices.slice(..)),
                    offsets: offsets.slice(..4 * (ids.len() as u64 + 1)),
                    weights: None,
                };
                group.encode_forward(&mut encoder, &one, outputs.slice(..), Mode::Train)?;
            }
            clock.submit(encoder)?;
            progress.advance(stretch.len() as u64);
        }
        group.check()?;
        Ok(group.counters()?.into_iter().sum())
    }
}

/// Hit rates of a trace's tables, with a column for each configuration.
fn by_table(outcomes: &[Object]) -> Option<String> {
    let tables = outcomes.first().map(|outcome| outcome.list("tables")).filter(|tables| !tables.is_empty())?;
    let shape = |outcome: &Object| {
        let (ways, percent) = (outcome.number("ways"), outcome.number("cache_percent"));
        let window = outcome.number("window_ways");
        let window = if window.is_nan() { String::new() } else { format!(" of {window} in") };
        format!("{}{window} {ways} ways {percent} %", outcome.text("policy"))
    };
    let title = format!("table of {}", outcomes[0].text("trace"));
    let head = [title, "accesses".to_owned()].into_iter().chain(outcomes.iter().map(shape));
    let line = |(at, table): (usize, &Object)| {
        let rate = |outcome: &Object| format!("{:.3} %", 100.0 * outcome.list("tables")[at].number("hit_rate"));
        let words = [table.number("table"), table.number("accesses")].map(|number| number.to_string());
        words.into_iter().chain(outcomes.iter().map(rate)).collect::<Vec<_>>()
    };
    Some(output::table(head, |_| false, tables.iter().enumerate().map(line)))
}

/// Draws a chart of each of the traces.
fn draw(outcomes: &[Object], args: &Args, traces: usize, stem: &Path) -> anyhow::Result<[PathBuf; 2]> {
    let each = match args.batch {
        1 => "one access at a time".to_owned(),
        batch => format!("batches of {batch} accesses"),
    };
    let mut charts: Vec<Chart> = outcomes.chunks(outcomes.len() / traces).map(|of| chart(of, args)).collect();
    if let [one] = &mut charts[..] {
        one.title = format!("Hit rate by cache size: {}, {each}", one.title);
        return one.write(stem);
    }
    Panels { title: format!("Hit rate by cache size, {each}"), charts }.write(stem)
}

/// The chart of a trace, with a line for each number of ways and policy. Colours tell these apart; LFU has that of LRU and is dashed.
fn chart(outcomes: &[Object], args: &Args) -> Chart {
    let mut chart = Chart::new("Cache size (% of rows)", "Hit rate (%)");
    chart.title = outcomes[0].text("trace").to_owned();
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
    let curves = args.choices().into_iter().step_by(sizes).zip(outcomes.chunks(sizes));
    let mut colours = Vec::new();
    for (Choice { kind, ways, window_ways, .. }, outcomes) in curves {
        let pair = matches!(kind, Kind::Of(policy) if COMPARED.contains(&policy));
        let key = (ways, (!pair).then(|| (kind.to_string(), window_ways)));
        let colour = colours.iter().position(|known| *known == key).unwrap_or(colours.len());
        if colour == colours.len() {
            colours.push(key);
        }
        let ways = match ways {
            0 => "fully associative".to_owned(),
            1 => "1 way".to_owned(),
            ways => format!("{ways} ways"),
        };
        let title = match kind {
            Kind::Of(Policy::Window) => format!("window of {window_ways}"),
            Kind::Of(policy) => names::title(policy),
            Kind::Best => "best (Belady)".to_owned(),
        };
        let label = format!("{title}, {ways}");
        let point = |outcome: &Object| (outcome.number("cache_percent"), 100.0 * outcome.number("hit_rate"));
        let mut points: Vec<(f64, f64)> = outcomes.iter().map(point).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        chart.line(label, points, Style { colour, dashed: kind == Kind::Of(Policy::Lfu), markers: true });
    }
    chart
}
