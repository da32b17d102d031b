//! A staged table far larger than the memory of a device: filled, trained, flushed and opened again, in RAM and in a file. Measures the
//! host memory beside the table and the bytes that cross in a step.
//!
//! `cargo bench --bench large -- --rows 40000000` fills 3 GB at INT4 x 128. A software adapter keeps the device's
//! buffers in this process's memory. So the peak is read after filling, before there are such buffers, and again at the end.
#![allow(clippy::print_stdout, reason = "a benchmark prints its results")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap ends the benchmark")]

#[path = "support/run.rs"]
mod run;

use std::{fs, path::PathBuf, time::Instant};

use clap::{Parser, ValueEnum};
use hotrow::{
    Context, FileStore, Group, GroupConfig, Init, Layout, Optimizer, Placement, Precision, RamStore, SharedStore,
    adapter, store,
};
use hotrow_cli::report::run::{Machine, Run};
use hotrow_cli::report::units::{Times, bytes};
use hotrow_cli::report::{Setting, Unit, table};
use rand::SeedableRng as _;
use rand_distr::Distribution as _;
use run::Common;

/// The most memory that filling may take beside the table, in bytes.
const LIMIT: u64 = 256 << 20;
/// Coprime to every smaller number of rows. Spreads the frequent rows over the whole table, as in a real table.
const SPREAD: u64 = 4_294_967_291;
/// Indices of a bag.
const POOLED: usize = 8;

#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    common: Common,
    /// Rows of the table
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(32..=4_294_967_290))]
    rows: u32,
    /// Floats in a row
    #[arg(long, default_value_t = 128)]
    dim: u32,
    /// Where the records are
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Where::Ram, Where::File])]
    store: Vec<Where>,
    /// First values
    #[arg(long, value_enum, default_value_t = Values::Uniform)]
    init: Values,
    /// Rows of the cache, in percent
    #[arg(long, default_value_t = 1.0)]
    cache_percent: f64,
    /// Indices of a batch
    #[arg(long, default_value_t = 65_536)]
    batch: usize,
    /// Steps
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// Zipf's exponent
    #[arg(long, default_value_t = 1.05)]
    zipf: f64,
    /// Where the file goes [default: the folder for temporary files]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Where {
    Ram,
    File,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Values {
    Zeros,
    Uniform,
    Normal,
}

impl Values {
    fn init(self) -> Init {
        match self {
            Self::Zeros => Init::Constant(0.0),
            Self::Uniform => Init::Uniform { low: -0.05, high: 0.05 },
            Self::Normal => Init::Normal { mean: 0.0, std: 0.02 },
        }
    }
}

fn main() {
    let mut options = Options::parse();
    if !options.common.wants("large") {
        return;
    }
    if options.common.test {
        (options.steps, options.batch) = (options.steps.min(3), options.batch.min(8192));
    }
    match adapter::open_best(adapter::Wanted::Any) {
        Ok(context) => measure(&options, &context),
        Err(reason) => println!("large left out: {reason}"),
    }
}

fn measure(options: &Options, context: &Context) {
    let mut config = GroupConfig::new(&[options.rows], options.dim);
    config.precision = Precision::Int4;
    config.placement = Placement::Staged;
    config.cache_rows = (f64::from(options.rows) * options.cache_percent / 100.0) as u32;
    config.optimizer = Optimizer::row_wise_adagrad(0.05);
    config.init = options.init.init();
    let layout = Layout::new(&config, u64::MAX).unwrap();
    let mut run = options.common.start("large");
    run.on(Machine::of(context));
    let cache = u64::from(layout.slots()) * u64::from(layout.row.row_words) * 4;
    run.describe(
        "large",
        format!(
            "{} rows x {} INT4, {:?}, row-wise AdaGrad: {}; cache of {} rows: {}; {} steps of {} indices, Zipf {}",
            options.rows,
            options.dim,
            options.init,
            bytes(layout.table_bytes() as f64),
            layout.slots(),
            bytes(cache as f64),
            options.steps,
            options.batch,
            options.zipf
        ),
    );
    let batches = batches(options);
    for &place in &options.store {
        one(options, context, &config, &layout, &batches, (place, &mut run));
    }
    let title = "Bytes and records of all steps; memory at the end has the buffers of a software adapter in it.";
    options.common.finish(&run, &[(title.to_owned(), table(&run.records, &["what"], "store"))]);
}

fn batches(options: &Options) -> Vec<Vec<u32>> {
    let zipf = rand_distr::Zipf::new(f64::from(options.rows), options.zipf).unwrap();
    let mut source = rand_pcg::Pcg64::seed_from_u64(1);
    let rows = u64::from(options.rows);
    let mut index = || ((zipf.sample(&mut source) as u64 - 1) * SPREAD % rows) as u32;
    (0..options.steps).map(|_| (0..options.batch).map(|_| index()).collect()).collect()
}

fn one(
    options: &Options,
    context: &Context,
    config: &GroupConfig,
    layout: &Layout,
    batches: &[Vec<u32>],
    (place, run): (Where, &mut Run),
) {
    let folder = options.folder.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::tempdir_in(folder).unwrap();
    let path = folder.path().join("table");

    let before = peak_begins();
    let start = Instant::now();
    let shared = match place {
        Where::Ram => SharedStore::new(RamStore::new(layout).unwrap()),
        Where::File => SharedStore::new(FileStore::create(&path, config).unwrap()),
    };
    shared.with_mut(|store| store::fill(store, config, layout, None)).unwrap();
    let fill_seconds = start.elapsed().as_secs_f64();
    let fill_peak = status("VmHWM");
    let in_ram = if place == Where::Ram { layout.table_bytes() } else { 0 };
    let beside = before.zip(fill_peak).map(|(before, peak)| peak.saturating_sub(before + in_ram));
    if let Some(beside) = beside {
        assert!(beside <= LIMIT, "filling took {} beside the table", bytes(beside as f64));
    }

    let start = Instant::now();
    let mut group = Group::with_store(context, config.clone(), shared.clone()).unwrap();
    let group_seconds = start.elapsed().as_secs_f64();

    let offsets: Vec<u32> = (0..=options.batch.div_ceil(POOLED)).map(|bag| bag * POOLED).map(|at| at as u32).collect();
    let offsets: Vec<u32> = offsets.iter().map(|&at| at.min(options.batch as u32)).collect();
    let grads = vec![1e-3; (offsets.len() - 1) * options.dim as usize];
    let (mut steps, mut crossed) = (Vec::new(), Vec::new());
    group.prefetch(&batches[0], &offsets, None).unwrap();
    for k in 0..batches.len() {
        let (start, before) = (Instant::now(), group.traffic().unwrap().bytes());
        let outputs = group.forward_prefetched().unwrap();
        assert!(outputs.iter().all(|x| x.is_finite()));
        if let Some(next) = batches.get(k + 1) {
            group.prefetch(next, &offsets, None).unwrap();
        }
        group.backward(&grads).unwrap();
        crossed.push((group.traffic().unwrap().bytes() - before) as f64);
        steps.push(start.elapsed().as_secs_f64());
    }
    let counters = group.counters().unwrap()[0];
    let trained = group.traffic().unwrap();

    let start = Instant::now();
    group.flush().unwrap();
    let flush_seconds = start.elapsed().as_secs_f64();
    let flushed = group.traffic().unwrap();

    let (anonymous, of_files) = (status("RssAnon"), status("RssFile"));
    // The rows in the store equal the group's.
    group.reset().unwrap();
    let rows: Vec<u32> = batches[0].iter().copied().take(1000).collect();
    let values = group.read_rows(&rows).unwrap();
    assert!(shared.read_rows(layout, &rows).unwrap() == values, "the store differs from the group");
    let trained_step = shared.with(|store| store.step());
    assert_eq!(trained_step as usize, batches.len());
    drop((group, shared));

    let setting = Setting::default().with("store", format!("{place:?}").to_lowercase());
    let known = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64);
    let mut at = run.at("large", &setting);
    if place == Where::File {
        let start = Instant::now();
        let again = FileStore::open(&path, config).unwrap();
        at.push("file opened again", Some(start.elapsed().as_secs_f64()), Unit::Seconds);
        assert!(again.was_flushed());
        let again = SharedStore::new(again);
        assert!(again.read_rows(layout, &rows).unwrap() == values, "the file, opened again, differs");
        at.push("file", Some(fs::metadata(&path).unwrap().len() as f64), Unit::Bytes);
        at.push("file on the disk", known(on_disk(&path)), Unit::Bytes);
    }
    let crossed = Times::of(crossed);
    for (what, value, unit) in [
        ("made and filled", Some(fill_seconds), Unit::Seconds),
        ("rows filled", Some(f64::from(options.rows) / fill_seconds), Unit::PerSecond),
        ("peak memory by then", known(fill_peak), Unit::Bytes),
        ("peak beside the table and what was there before", known(beside), Unit::Bytes),
        ("group made", Some(group_seconds), Unit::Seconds),
        ("accesses", Some(counters.accesses as f64), Unit::Count),
        ("hits", Some(counters.hit_rate()), Unit::Share),
        ("records to the device", Some(trained.records_in as f64), Unit::Count),
        ("records back", Some(trained.records_out as f64), Unit::Count),
        ("bytes to the device", Some(trained.bytes_in as f64), Unit::Bytes),
        ("bytes back", Some(trained.bytes_out as f64), Unit::Bytes),
        ("lists of missing rows", Some(trained.list_bytes as f64), Unit::Bytes),
        ("bytes a step, median", Some(crossed.median), Unit::Bytes),
        ("bytes a step, highest", Some(crossed.highest), Unit::Bytes),
        ("host part", Some(trained.host_nanoseconds as f64 * 1e-9), Unit::Seconds),
        ("flush", Some(flush_seconds), Unit::Seconds),
        ("records flushed", Some((flushed.records_out - trained.records_out) as f64), Unit::Count),
        ("memory at the end", known(anonymous), Unit::Bytes),
        ("pages of files at the end", known(of_files), Unit::Bytes),
    ] {
        at.push(what, value, unit);
    }
    at.timed("step", Times::of(steps));
}

/// A figure of this process's memory, if the system reports it.
fn status(name: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}

/// Restarts the measurement of the peak, and returns the present memory.
fn peak_begins() -> Option<u64> {
    fs::write("/proc/self/clear_refs", "5").ok()?;
    status("VmHWM")
}

#[cfg(unix)]
fn on_disk(path: &std::path::Path) -> Option<u64> {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(path).ok().map(|data| data.blocks() * 512)
}

#[cfg(not(unix))]
fn on_disk(_: &std::path::Path) -> Option<u64> {
    None
}
