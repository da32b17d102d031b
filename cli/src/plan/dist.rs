//! `hotrow plan dist`: the expected bytes and time between ranks that share a table (SPEC 11), before anything runs.

mod limits;
pub(crate) mod run;
mod step;
mod wire;

use super::amount::{self, MOST_DIM};
use super::distribution::Distribution;
use anyhow::anyhow;
use hotrow::{Policy, Pooling, Precision};
use hotrow_dist::WireForm;
use hotrow_report::clock;
use hotrow_report::failure::{Failure, ensure_usage};
use hotrow_report::names::{admitting, one_of};
use hotrow_report::object::{self, Field, Object};
use hotrow_report::options::{Options, TraceArgs, WindowArgs, WireArgs, generated_trace, percent, power, whole};
use hotrow_report::output;
use hotrow_report::plot::{Chart, Style};
use hotrow_report::records::{Measurement, Setting, Unit};
use hotrow_report::trace::{Trace, split_list};
use limits::Place;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use run::{Batches, Cache};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use step::{Class, Model, Speed};
use wire::Wire;

/// Most accesses that are drawn from a distribution; a batch has at most as many (SPEC 3).
const MOST_ACCESSES: u64 = 1 << 30;

/// Expect the bytes between ranks that share a table, and their time
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Traces: files (.u32, .u64, .npy, .oracleGeneral, CSV, text, Criteo's, each also .gz or .zst), names in the data folder, or generated (zipf:rows=..,s=..[,n=..], uniform:rows=..[,n=..], meta2021[:rows=..,n=..]).
    /// The plan takes their accesses as independent
    #[arg(long, value_name = "T[,T]")]
    trace: Vec<String>,
    #[command(flatten)]
    reading: TraceArgs,
    /// A distribution, which needs no trace; may be given several times: zipf:rows=1e9,s=1.05, exponential:rows=..,scale=..,
    /// half-normal:rows=..,scale=.. or uniform:rows=..
    #[arg(long, visible_alias = "dist", value_name = "D")]
    distribution: Vec<Distribution>,
    /// Ranks that share the table, powers of two
    #[arg(long, value_name = "R[,R]", value_delimiter = ',', default_values_t = [8], allow_negative_numbers = true, value_parser = power(1024))]
    ranks: Vec<u32>,
    /// Virtual shards, a power of two, at least the ranks [default: the most ranks]
    #[arg(long, value_name = "V", allow_negative_numbers = true, value_parser = power(1024))]
    shards: Option<u32>,
    /// Bags of a batch of all ranks together
    #[arg(long, value_name = "N", default_value_t = 4096, allow_negative_numbers = true, value_parser = whole(1u32..=1 << 30))]
    batch: u32,
    /// Accesses of a bag, for a distribution or a trace without bags [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole(1u32..=1 << 30))]
    lookups: Option<u32>,
    /// Steps from a new group on, which fill its cache [default: all whole batches of a trace; 16 of a distribution]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = amount::count)]
    steps: Option<u64>,
    /// Deal the bags of a trace in random order
    #[arg(long)]
    shuffle: bool,
    /// Floats in a row
    #[arg(long, value_name = "D", default_value_t = 128, allow_negative_numbers = true, value_parser = whole(1..=MOST_DIM))]
    dim: u32,
    /// Precision of the table
    #[arg(long, default_value_t = Precision::Int8, value_parser = one_of(Precision::ALL))]
    precision: Precision,
    /// Pooling
    #[arg(long, default_value_t = Pooling::Sum, value_parser = one_of(Pooling::ALL))]
    pooling: Pooling,
    /// Each access has a weight
    #[arg(long)]
    weighted: bool,
    #[command(flatten)]
    wire: WireArgs,
    /// Rows that the FP32 cache of all ranks holds, in percent of all rows; 0: no cache
    #[arg(long, value_name = "P", default_value_t = 10.0, allow_negative_numbers = true, value_parser = percent)]
    cache_percent: f64,
    /// Replacement policy
    #[arg(long, default_value_t = Policy::Lru, value_parser = one_of(admitting()))]
    policy: Policy,
    #[command(flatten)]
    window: WindowArgs,
    #[command(flatten)]
    speed: Speed,
    /// Memory of a machine, for a note where its ranks need more [default: that of this one]
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = amount::some_bytes)]
    machine_memory: Option<u64>,
    /// Run the steps on groups over ranks, as threads of this process, and compare their bytes. Exit code 1 if those of a distribution differ by
    /// more than 1 % and chance
    #[arg(long)]
    verify: bool,
    /// Draw STEM.svg and STEM.png: bytes of a rank over the number of ranks
    #[arg(long, value_name = "STEM", value_parser = output::stem())]
    plot: Option<PathBuf>,
}

pub(super) fn run(options: &Options, args: &Args) -> Result<(), Failure> {
    let mut traces: Vec<String> = args.trace.iter().flat_map(|text| split_list(text)).collect();
    options.check_used(false, !traces.is_empty())?;
    let read = options.trace_files(&traces);
    output::check_files(options.json.as_deref(), None, args.plot.as_slice(), &read)?;
    if traces.is_empty() && args.distribution.is_empty() {
        traces.push(generated_trace("planning for generated accesses", "ones"));
    }
    let wires = args.wires()?;
    let mut answers = Vec::new();
    for text in &traces {
        let trace = options.trace(text, &args.reading, None)?;
        let classes = classes_of(&trace);
        let rows = classes.last().map_or(1, |class| class.first as u32 + 1);
        answers.extend(args.source(options, trace, (rows, classes), true)?.answers(args, &wires)?);
    }
    for from in &args.distribution {
        let (trace, table) = args.drawn(from, options.seed)?;
        answers.extend(args.source(options, trace, table, false)?.answers(args, &wires)?);
    }
    options.write_json(&answers)?;
    if let Some(stem) = &args.plot {
        draw(&answers, stem)?;
    }
    output::print(&match &answers[..] {
        [one] => text(one),
        all => object::table(&all.iter().cloned().map(Object::plain).collect::<Vec<_>>()),
    })?;
    if answers.iter().flat_map(|answer| answer.list("verify")).any(|line| line.text("within") == "no") {
        return Err(anyhow!(
            "--verify: wanted the planned bytes, found the deviations above; report them with the command"
        )
        .into());
    }
    Ok(())
}

/// The accesses of a trace or of a distribution, and their model.
struct Source {
    name: String,
    is_trace: bool,
    rows: u32,
    model: Model,
    batches: Batches,
    cache: Cache,
}

impl Args {
    fn shards(&self) -> u32 {
        self.shards.or_else(|| self.ranks.iter().copied().max()).unwrap_or(1)
    }

    /// The checked options, for each number of ranks.
    fn wires(&self) -> Result<Vec<Wire>, Failure> {
        let (most, shards) = (self.ranks.iter().copied().max().unwrap_or(1), self.shards());
        ensure_usage!(
            most <= shards,
            "--ranks: wanted at most {shards}, the --shards, found {most}; a rank holds whole virtual shards, so take more of them"
        );
        let Self { dim, precision, pooling, weighted, .. } = *self;
        let form = self.wire.options();
        let wire = |&ranks: &u32| Wire { dim, precision, form, pooling, weighted, ranks, shards };
        for (option, form) in [("--wire-rows", self.wire.wire_rows), ("--wire-gradients", self.wire.wire_gradients)] {
            ensure_usage!(
                form == WireForm::Exact || wire(&most).words(form) < dim,
                "{option}: wanted a form that is shorter than FP32, found {form} for {dim} floats a row; take exact"
            );
        }
        let ranks: BTreeSet<u32> = self.ranks.iter().copied().collect();
        Ok(ranks.iter().map(wire).collect())
    }

    /// Draws the steps of a distribution, and classes its rows.
    fn drawn(&self, from: &Distribution, seed: u64) -> Result<(Trace, (u32, Vec<Class>)), Failure> {
        let rows = from.table_rows()?;
        let (lookups, steps) = (self.lookups.unwrap_or(1), self.steps.unwrap_or(16));
        let accesses = (u64::from(self.batch) * u64::from(lookups)).saturating_mul(steps);
        ensure_usage!(
            accesses <= MOST_ACCESSES,
            "--steps: wanted at most {MOST_ACCESSES} accesses to draw, found {accesses} in {steps} steps; take fewer or smaller ones"
        );
        let mut first = 0;
        let class = |&(rows, probability): &(u64, f64)| {
            first += rows;
            Class { first: first - rows, rows, probability }
        };
        let classes = from.skew().map_err(Failure::usage)?.bins().iter().map(class).collect();
        let ids = from.draw(accesses as usize, &mut Pcg64::seed_from_u64(seed))?;
        Ok((Trace { name: from.text.clone(), ids, ..Trace::default() }, (rows, classes)))
    }

    /// Cuts accesses into bags and batches, and models them.
    fn source(
        &self,
        options: &Options,
        trace: Trace,
        (rows, classes): (u32, Vec<Class>),
        is_trace: bool,
    ) -> Result<Source, Failure> {
        // Beside a distribution, the bags of a trace keep their own lengths.
        let offsets = trace.bags(self.lookups.filter(|_| trace.offsets.is_none() || self.distribution.is_empty()))?;
        let mut order: Vec<u32> = (0..offsets.len() as u32 - 1).collect();
        if self.shuffle {
            order.shuffle(&mut Pcg64::seed_from_u64(options.seed));
        }
        let (bags, batch) = (order.len() as u64, u64::from(self.batch));
        let steps = (bags / batch).min(self.steps.unwrap_or(u64::MAX));
        ensure_usage!(
            steps > 0,
            "--batch: wanted at most {bags}, the bags of {}, found {batch}; take a longer trace or a smaller batch",
            trace.name
        );
        order.truncate((steps * batch) as usize);
        let slots = (f64::from(rows) * self.cache_percent / 100.0).ceil() as u32;
        let (policy, window_ways) = (self.policy, self.window.window_ways);
        let cache = Cache { policy, window_ways, rows: slots, shards: self.shards() };
        let batches = Batches { ids: trace.ids, offsets, order, batch: self.batch };
        let dirty = batches.dirty(&cache, rows).map_err(Failure::usage)?;
        let model = Model { classes, dirty, lengths: batches.lengths(), batch: self.batch };
        Ok(Source { name: trace.name, is_trace, rows, model, batches, cache })
    }
}

/// The rows of a trace, each with its share of the accesses.
fn classes_of(trace: &Trace) -> Vec<Class> {
    let (mut ids, all) = (trace.ids.clone(), trace.ids.len() as f64);
    ids.sort_unstable();
    let class = |same: &[u32]| Class { first: same[0].into(), rows: 1, probability: same.len() as f64 / all };
    ids.chunk_by(|a, b| a == b).map(class).collect()
}

impl Source {
    /// An answer for each number of ranks.
    fn answers(&self, args: &Args, wires: &[Wire]) -> Result<Vec<Object>, Failure> {
        let steps = self.batches.steps();
        let group = Object::default()
            .with("rows", self.rows)
            .with("cache_rows", self.cache.rows)
            .with("shards", self.cache.shards)
            .with("batch", args.batch)
            .with("accesses_per_bag", self.model.per_bag())
            .with("steps", steps);
        let memory = args.machine_memory.or_else(|| clock::memory(false)).map_or(f64::INFINITY, |bytes| bytes as f64);
        let place = Place { rows: self.rows, cache: self.cache, memory, per_host: args.speed.per_host };
        let answer = |wire: &Wire| {
            let step = self.model.step(*wire);
            for note in limits::notes(&self.model, *wire, &place) {
                output::note(&format!("note: {}, {note}", self.name));
            }
            let mut verify = Vec::new();
            if args.verify {
                let counted = self.batches.run(&self.cache, self.rows, wire)?;
                // 1 % for the formulas; and the number of rows that are asked for has a standard deviation of at most its root.
                let asked = steps as f64 * step.over_pairs(|asked| asked.rows);
                let allowed = 1.0 + 100.0 / asked.max(1.0).sqrt();
                verify = run::compare(step.phases(), counted, (!self.is_trace).then_some(allowed));
            }
            Ok(Object::default()
                .with("source", self.name.as_str())
                .with("ranks", wire.ranks)
                .and(step.sums(&args.speed))
                .with("group", group.clone())
                .and(step.details(&args.speed))
                .with("verify", verify.into_iter().collect::<Field>()))
        };
        wires.iter().map(answer).collect()
    }
}

/// The text of an answer from its JSON.
fn text(json: &Object) -> String {
    let mut parts = vec![json.clone().plain().table("plan dist"), json.object("group").table("the group")];
    parts.push(json.object("step").table("a step, all ranks"));
    parts.push(format!("Bytes of a step, all ranks:\n{}", object::table(json.list("phases"))));
    if !json.list("verify").is_empty() {
        parts.push(format!("Planned and counted bytes of a step:\n{}", object::table(json.list("verify"))));
    }
    parts.join("\n\n")
}

/// Draws the bytes that a rank sends over the number of ranks, a line for each source. A single rank exchanges nothing and is left out.
fn draw(answers: &[Object], stem: &Path) -> anyhow::Result<()> {
    let record = |one: &Object| {
        let setting = Setting::default().with("ranks", one.number("ranks"));
        Measurement::new("sent", one.text("source"), &setting, one.number("sent_bytes"), Unit::Bytes)
    };
    let records: Vec<Measurement> = answers.iter().filter(|one| one.number("ranks") > 1.0).map(record).collect();
    let mut chart = Chart::new("Ranks", "Sent by a rank in a step");
    chart.title = "Bytes that a rank sends in a step, by number of ranks".to_owned();
    (chart.log_x, chart.log_y, chart.x_range) = (true, true, Some((1.5, 1500.0)));
    let style = |record: &Measurement| {
        let colour = answers.iter().position(|one| one.text("source") == record.shape).unwrap_or_default();
        Style { colour, dashed: false, markers: true }
    };
    chart.lines(&records, |record| record.shape.clone(), |record| record.setting.number("ranks"), style);
    chart.write(stem).map(drop)
}
