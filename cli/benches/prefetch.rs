//! The share of the host's part in a staged step that a prefetch hides. Steps without and with prefetch take turns, so that disturbances of the
//! machine meet both. Between forward and backward the caller's own work runs: a loop on one core for some milliseconds, or nothing.
//!
//! Two figures: `hidden`, the share of the host's part that no call waited for, by the library's own clocks; and `saved`, the time by which
//! a step became shorter, as a share of the host's part, by the medians of the pairs. A software adapter takes a hundred times as long for
//! a record as the host, so its noise hides `saved`. The case `slow` has a store whose records cost the host as much as such an adapter
//! takes, as with a disk or a network. The benchmark needs two cores: one for the host's part, one for the caller or a software adapter. So
//! it runs itself again with one thread for each (`LP_NUM_THREADS`, `RAYON_NUM_THREADS`), unless these are set already.
#![allow(clippy::print_stdout, reason = "a benchmark prints its results")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap ends the benchmark")]

#[path = "support/run.rs"]
mod run;

use std::{
    hint::black_box,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use clap::{Parser, ValueEnum};
use hotrow::{
    Context, Error, FileStore, Group, GroupConfig, Init, Layout, Optimizer, Placement, Precision, RamStore,
    SharedStore, Store, adapter, store,
};
use hotrow_cli::report::run::{Machine, Run};
use hotrow_cli::report::units::{Times, bytes_per_second, median};
use hotrow_cli::report::{Select, Setting, Unit, table};
use rand::SeedableRng as _;
use run::Common;

const ONE_THREAD: [&str; 2] = ["LP_NUM_THREADS", "RAYON_NUM_THREADS"];

#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    common: Common,
    /// Rows of the table
    #[arg(long, default_value_t = 2_000_000, value_parser = clap::value_parser!(u32).range(1000..))]
    rows: u32,
    /// Floats in a row
    #[arg(long, default_value_t = 128)]
    dim: u32,
    /// Distinct rows of a batch
    #[arg(long, default_value_t = 10_000)]
    batch: u32,
    /// Precision of the table
    #[arg(long, value_enum, default_value_t = PrecisionName::Int8)]
    precision: PrecisionName,
    /// Rows of the cache, in percent
    #[arg(long, default_value_t = 5.0)]
    cache_percent: f64,
    /// Where the records are
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Where::Ram, Where::File, Where::Slow])]
    store: Vec<Where>,
    /// Microseconds that a record of the slow store takes to read
    #[arg(long, default_value_t = 20)]
    slow: u64,
    /// Milliseconds of the caller's own work between forward and backward
    #[arg(long, value_delimiter = ',', default_values_t = [0, 50])]
    dense: Vec<u64>,
    /// Pairs of steps measured
    #[arg(long, default_value_t = 11)]
    rounds: usize,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Where {
    Ram,
    File,
    Slow,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PrecisionName {
    Fp32,
    Int8,
}

/// The times of a step without and a step with prefetch.
#[derive(Clone, Copy, Debug)]
struct Round {
    without: Taken,
    with: Taken,
}

/// Seconds of a step, of the host's part in it, and of the calls' waiting for that part.
#[derive(Clone, Copy, Debug)]
struct Taken {
    step_seconds: f64,
    host_seconds: f64,
    waited_seconds: f64,
}

fn main() {
    let mut options = Options::parse();
    if !options.common.wants("prefetch") {
        return;
    }
    if ONE_THREAD.iter().any(|name| std::env::var_os(name).is_none()) {
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(std::env::args_os().skip(1));
        for name in ONE_THREAD.into_iter().filter(|name| std::env::var_os(name).is_none()) {
            again.env(name, "1");
        }
        std::process::exit(again.status().unwrap().code().unwrap_or(1));
    }
    if options.common.test {
        (options.rows, options.batch, options.rounds) = (20_000, 1000, 2);
        options.dense = vec![0, 1];
    }
    match adapter::open_best(adapter::Wanted::Any) {
        Ok(context) => measure(&options, &context),
        Err(reason) => println!("prefetch left out: {reason}"),
    }
}

fn measure(options: &Options, context: &Context) {
    let mut config = GroupConfig::new(&[options.rows], options.dim);
    config.placement = Placement::Staged;
    config.precision = match options.precision {
        PrecisionName::Fp32 => Precision::Fp32,
        PrecisionName::Int8 => Precision::Int8,
    };
    config.cache_rows = (f64::from(options.rows) * options.cache_percent / 100.0) as u32;
    config.optimizer = Optimizer::row_wise_adagrad(0.05);
    config.init = Init::Uniform { low: -0.1, high: 0.1 };
    let layout = Layout::new(&config, u64::MAX).unwrap();
    let mut run = options.common.start("prefetch");
    run.on(Machine::of(context));
    run.describe(
        "prefetch",
        format!(
            "{} rows x {} {:?}, {} B a record; cache of {} rows; batches of {} distinct rows; slow: {} us a record; a plain copy: {} a thread",
            options.rows,
            options.dim,
            options.precision,
            layout.stride(),
            layout.slots(),
            options.batch,
            options.slow,
            bytes_per_second(copied(if options.common.test { 1 << 20 } else { 256 << 20 }))
        ),
    );
    let folder = tempfile::tempdir().unwrap();
    for place in [Where::Ram, Where::File] {
        let store = place.open(options, &config, &layout, &folder.path().join("alone"));
        store.with_mut(|store| {
            store::fill(store, &config, &layout, None).unwrap();
            alone(store, place, (options.rows / 4).min(100_000), &mut run);
        });
    }
    for &place in &options.store {
        let store = place.open(options, &config, &layout, &folder.path().join("table"));
        let group = Group::with_store(context, config.clone(), store).unwrap();
        let mut steps = Steps::new(options, group);
        for &dense in &options.dense {
            steps.case(place, dense, options.rounds, &mut run);
        }
    }
    let of = |shape: &'static str| run.select(Select { what: "", shape, setting: "" });
    let tables = [
        ("A store alone, each record.".to_owned(), table(of("alone"), &["store"], "what")),
        ("Steps without and with prefetch.".to_owned(), table(of("prefetch"), &["store", "caller's work, ms"], "what")),
    ];
    options.common.finish(&run, &tables);
}

impl Where {
    fn name(self) -> &'static str {
        match self {
            Self::Ram => "ram",
            Self::File => "file",
            Self::Slow => "slow",
        }
    }

    fn open(self, options: &Options, config: &GroupConfig, layout: &Layout, path: &Path) -> SharedStore {
        match self {
            Self::Ram => SharedStore::new(RamStore::new(layout).unwrap()),
            Self::File => SharedStore::new(FileStore::create(path, config).unwrap()),
            Self::Slow => SharedStore::new(Slow {
                store: RamStore::new(layout).unwrap(),
                record: Duration::from_micros(options.slow),
            }),
        }
    }
}

/// A store in RAM that keeps a core busy for some time for each record that it reads.
#[derive(Debug)]
struct Slow {
    store: RamStore,
    record: Duration,
}

impl Store for Slow {
    fn rows(&self) -> u32 {
        self.store.rows()
    }

    fn stride(&self) -> u64 {
        self.store.stride()
    }

    fn read(&self, rows: &[u32], out: &mut [u8]) -> Result<(), Error> {
        work(self.record * rows.len() as u32);
        self.store.read(rows, out)
    }

    fn write(&mut self, rows: &[u32], records: &[u8]) -> Result<(), Error> {
        self.store.write(rows, records)
    }

    fn read_range(&self, first_row: u32, out: &mut [u8]) -> Result<(), Error> {
        self.store.read_range(first_row, out)
    }

    fn write_range(&mut self, first_row: u32, records: &[u8]) -> Result<(), Error> {
        self.store.write_range(first_row, records)
    }

    fn unflushed(&mut self) -> Result<(), Error> {
        self.store.unflushed()
    }

    fn flushed(&mut self, step: u32) -> Result<(), Error> {
        self.store.flushed(step)
    }

    fn step(&self) -> u32 {
        self.store.step()
    }

    fn filled(&self) -> bool {
        self.store.filled()
    }
}

/// The time of a store for a record, without any device. The rows are distinct, from the whole table and different each time, so none is in
/// a core's cache.
fn alone(store: &mut dyn Store, place: Where, records: u32, run: &mut Run) {
    let mut source = rand_pcg::Pcg64::seed_from_u64(2);
    let mut bytes = vec![0; records as usize * store.stride() as usize];
    let mut seconds = [Vec::new(), Vec::new()];
    for _ in 0..7 {
        let rows = distinct(&mut source, store.rows(), records);
        let start = Instant::now();
        store.read(&rows, &mut bytes).unwrap();
        seconds[0].push(start.elapsed().as_secs_f64());
        let rows = distinct(&mut source, store.rows(), records);
        let start = Instant::now();
        store.write(&rows, &bytes).unwrap();
        seconds[1].push(start.elapsed().as_secs_f64());
    }
    let mut at = run.at("alone", &Setting::default().with("store", place.name()));
    for (what, times) in ["read", "write"].into_iter().zip(seconds.map(Times::of)) {
        let rate = bytes.len() as f64 / times.median;
        at.timed(what, times.scaled(1.0 / f64::from(records)));
        at.push(&format!("{what}, bytes"), rate, Unit::BytesPerSecond);
    }
}

fn distinct(source: &mut rand_pcg::Pcg64, rows: u32, count: u32) -> Vec<u32> {
    rand::seq::index::sample(source, rows as usize, count as usize).into_iter().map(|row| row as u32).collect()
}

/// Number of different batches. The rows of a batch leave the cache long before the batch comes again.
const BATCHES: usize = 16;
/// Steps of each kind in a round.
const STEPS: usize = 2;

/// The training steps of a group.
struct Steps {
    group: Group,
    batches: Vec<Vec<u32>>,
    offsets: Vec<u32>,
    grads: Vec<f32>,
    taken: usize,
}

impl Steps {
    fn new(options: &Options, group: Group) -> Self {
        let bag = options.batch.div_ceil(8).max(1);
        let offsets: Vec<u32> = (0..=options.batch.div_ceil(bag)).map(|k| (k * bag).min(options.batch)).collect();
        let grads = vec![1e-3; (offsets.len() - 1) * options.dim as usize];
        let mut source = rand_pcg::Pcg64::seed_from_u64(1);
        let batches = (0..BATCHES).map(|_| distinct(&mut source, options.rows, options.batch)).collect();
        Self { group, batches, offsets, grads, taken: 0 }
    }

    fn next(&mut self) -> Vec<u32> {
        self.taken += 1;
        self.batches[self.taken % BATCHES].clone()
    }

    fn prefetch_next(&mut self) {
        let next = self.next();
        self.group.prefetch(&next, &self.offsets, None).unwrap();
    }

    fn rest(&mut self, dense: Duration) {
        work(dense);
        self.group.backward(&self.grads).unwrap();
    }

    /// The times of steps without prefetch.
    fn without(&mut self, dense: Duration) -> Taken {
        self.timed(|this| {
            let next = this.next();
            black_box(this.group.forward(&next, &this.offsets, None).unwrap());
            this.rest(dense);
        })
    }

    /// The times of steps with prefetch. Each timed step finds its batch prefetched and prefetches the next batch. The first step waits for
    /// a prefetch from before the timed part; in return, no step waits for the prefetch of the last step.
    fn with(&mut self, dense: Duration) -> Taken {
        self.prefetch_next();
        let step = |this: &mut Self| {
            black_box(this.group.forward_prefetched().unwrap());
            this.prefetch_next();
            this.rest(dense);
        };
        step(self);
        let found = self.timed(step);
        self.group.forward_prefetched().unwrap();
        self.rest(Duration::ZERO);
        found
    }

    fn timed(&mut self, mut step: impl FnMut(&mut Self)) -> Taken {
        let host = |this: &Self| {
            let traffic = this.group.traffic().unwrap();
            [traffic.host_nanoseconds, traffic.waited_nanoseconds].map(|nanoseconds| nanoseconds as f64 * 1e-9)
        };
        let (start, before) = (Instant::now(), host(self));
        for _ in 0..STEPS {
            step(self);
        }
        let (step_seconds, after) = (start.elapsed().as_secs_f64(), host(self));
        let a_step = |seconds: f64| seconds / STEPS as f64;
        Taken {
            step_seconds: a_step(step_seconds),
            host_seconds: a_step(after[0] - before[0]),
            waited_seconds: a_step(after[1] - before[1]),
        }
    }

    fn case(&mut self, store: Where, dense: u64, rounds: usize, run: &mut Run) {
        let work = Duration::from_millis(dense);
        // One round to allocate the memory that the first use takes.
        self.without(work);
        self.with(work);
        let (counted, traffic) = (self.group.counters().unwrap()[0], self.group.traffic().unwrap());
        let rounds: Vec<Round> =
            (0..rounds).map(|_| Round { without: self.without(work), with: self.with(work) }).collect();
        let counted = self.group.counters().unwrap()[0] - counted;
        let now = self.group.traffic().unwrap();
        let steps = (rounds.len() * (2 * STEPS + 2)) as f64;
        let of = |what: fn(&Round) -> f64| Times::of(rounds.iter().map(what).collect());
        let hidden = |taken: &Taken| 1.0 - taken.waited_seconds / taken.host_seconds;
        let median_of = |what: &dyn Fn(&Round) -> f64| median(rounds.iter().map(what).collect());
        let saved = of(|round| round.without.step_seconds - round.with.step_seconds);
        let host = of(|round| round.without.host_seconds);
        let setting = Setting::default().with("store", store.name()).with("caller's work, ms", dense as f64);
        let mut at = run.at("prefetch", &setting);
        at.timed("step without", of(|round| round.without.step_seconds));
        at.timed("step with", of(|round| round.with.step_seconds));
        at.timed("host part", host);
        for (what, value, unit) in [
            ("hidden", median_of(&|round| hidden(&round.with)), Unit::Share),
            ("hidden without", median_of(&|round| hidden(&round.without)), Unit::Share),
            ("saved", saved.median, Unit::Seconds),
            ("saved of host part", saved.median / host.median, Unit::Share),
            ("records in", (now.records_in - traffic.records_in) as f64 / steps, Unit::Count),
            ("records out", (now.records_out - traffic.records_out) as f64 / steps, Unit::Count),
            ("hit rate", counted.hit_rate(), Unit::Share),
        ] {
            at.push(what, value, unit);
        }
    }
}

/// The caller's work: keeps one core busy.
fn work(time: Duration) {
    let (start, mut x) = (Instant::now(), 1.0f32);
    while start.elapsed() < time {
        for _ in 0..1000 {
            x = black_box(x * 1.000_001);
        }
    }
}

/// Bytes a second of a plain copy in memory on one thread.
fn copied(bytes: usize) -> f64 {
    let (from, mut to) = (vec![1u8; bytes], vec![0u8; bytes]);
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let start = Instant::now();
        black_box(&mut to).copy_from_slice(black_box(&from));
        best = best.min(start.elapsed().as_secs_f64());
    }
    bytes as f64 / best
}
