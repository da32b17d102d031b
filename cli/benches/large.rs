//! A table far larger than a device would hold, staged: made, trained on, flushed, opened again; in RAM and in a file. What it takes of the
//! host's memory beside the table, and what crosses in a step.
//!
//! `cargo bench --bench large -- --rows 40000000` is the size of SPEC's goal: 3 GB at INT4 x 128. A software adapter keeps the
//! device's buffers in this process's memory, so the peak is taken after filling, before there is any, and again at the end.
#![allow(clippy::print_stdout, reason = "its results are for the reader")]
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on may stop")]

#[path = "support/run.rs"]
mod run;

use std::{fs, path::PathBuf, time::Instant};

use clap::{Parser, ValueEnum};
use hotrow::{
    Context, FileStore, Group, GroupConfig, Init, Layout, Optimizer, Placement, Precision, RamStore, SharedStore,
    adapter, store,
};
use rand::SeedableRng as _;
use rand_distr::Distribution as _;
use run::{Common, Machine, median};
use serde::Serialize;

/// What filling may take beside the table.
const LIMIT: u64 = 256 << 20;
/// Coprime to any number of rows below it: spreads the rows that are wanted often over the whole table, as a real one's are.
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

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Where {
    Ram,
    File,
}

#[derive(Clone, Copy, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
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

#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    rows: u32,
    dim: u32,
    precision: String,
    init: Values,
    table_bytes: u64,
    cache_rows: u32,
    cache_bytes: u64,
    batch: usize,
    zipf: f64,
    runs: Vec<Run>,
}

#[derive(Debug, Serialize)]
struct Run {
    store: Where,
    /// The store made and filled.
    fill_seconds: f64,
    fill_rows_per_second: f64,
    /// The most memory the process had until then, and how much of it is more than it had before and the table in RAM takes.
    fill_peak_bytes: Option<u64>,
    fill_peak_beside_table_bytes: Option<u64>,
    /// The group made from it.
    group_seconds: f64,
    steps: Vec<Step>,
    step_seconds_median: f64,
    accesses: u64,
    hit_rate: f64,
    records_in: u64,
    records_out: u64,
    bytes_in: u64,
    bytes_out: u64,
    list_bytes: u64,
    host_seconds: f64,
    flush_seconds: f64,
    flush_records: u64,
    /// What the process has of its own at the end, and of the file's pages; a software adapter's buffers are among the former.
    end_anonymous_bytes: Option<u64>,
    end_file_bytes: Option<u64>,
    /// The file's length, the room it takes on the disk, and the seconds to open it again.
    file_bytes: Option<u64>,
    file_disk_bytes: Option<u64>,
    open_seconds: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Step {
    seconds: f64,
    bytes: u64,
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
    let mut report = Report {
        machine: Machine::of(context),
        rows: options.rows,
        dim: options.dim,
        precision: "int4".into(),
        init: options.init,
        table_bytes: layout.table_bytes(),
        cache_rows: layout.slots(),
        cache_bytes: u64::from(layout.slots()) * u64::from(layout.row_words) * 4,
        batch: options.batch,
        zipf: options.zipf,
        runs: Vec::new(),
    };
    println!("large on {}", report.machine);
    println!(
        "{} rows x {} INT4, row-wise AdaGrad: {}; cache of {} rows: {}; {} steps of {} indices, Zipf {}",
        report.rows,
        report.dim,
        megabytes(report.table_bytes),
        report.cache_rows,
        megabytes(report.cache_bytes),
        options.steps,
        options.batch,
        options.zipf
    );
    let batches = batches(options);
    for &place in &options.store {
        let run = one(options, context, &config, &layout, &batches, place);
        run.print();
        report.runs.push(run);
    }
    options.common.write(&report);
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
    place: Where,
) -> Run {
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
        assert!(beside <= LIMIT, "filling took {} beside the table", megabytes(beside));
    }

    let start = Instant::now();
    let mut group = Group::with_store(context, config.clone(), shared.clone()).unwrap();
    let group_seconds = start.elapsed().as_secs_f64();

    let offsets: Vec<u32> = (0..=options.batch.div_ceil(POOLED)).map(|bag| bag * POOLED).map(|at| at as u32).collect();
    let offsets: Vec<u32> = offsets.iter().map(|&at| at.min(options.batch as u32)).collect();
    let grads = vec![1e-3; (offsets.len() - 1) * options.dim as usize];
    let mut steps = Vec::new();
    group.prefetch(&batches[0], &offsets, None).unwrap();
    for k in 0..batches.len() {
        let (start, bytes) = (Instant::now(), group.traffic().unwrap().bytes());
        let outputs = group.forward_prefetched().unwrap();
        assert!(outputs.iter().all(|x| x.is_finite()));
        if let Some(next) = batches.get(k + 1) {
            group.prefetch(next, &offsets, None).unwrap();
        }
        group.backward(&grads).unwrap();
        let bytes = group.traffic().unwrap().bytes() - bytes;
        steps.push(Step { seconds: start.elapsed().as_secs_f64(), bytes });
    }
    let counters = group.counters().unwrap()[0];
    let trained = group.traffic().unwrap();

    let start = Instant::now();
    group.flush().unwrap();
    let flush_seconds = start.elapsed().as_secs_f64();
    let flushed = group.traffic().unwrap();

    let (anonymous, of_files) = (status("RssAnon"), status("RssFile"));
    // The store has what the group says.
    group.reset().unwrap();
    let rows: Vec<u32> = batches[0].iter().copied().take(1000).collect();
    let values = group.read_rows(&rows).unwrap();
    assert!(shared.read_rows(layout, &rows).unwrap() == values, "the store differs from the group");
    let trained_step = shared.with(|store| store.step());
    assert_eq!(trained_step as usize, batches.len());
    drop((group, shared));

    let mut file = (None, None, None);
    if place == Where::File {
        let start = Instant::now();
        let again = FileStore::open(&path, config).unwrap();
        let seconds = start.elapsed().as_secs_f64();
        assert!(again.was_flushed());
        let again = SharedStore::new(again);
        assert!(again.read_rows(layout, &rows).unwrap() == values, "the file, opened again, differs");
        file = (Some(fs::metadata(&path).unwrap().len()), on_disk(&path), Some(seconds));
    }
    Run {
        store: place,
        fill_seconds,
        fill_rows_per_second: f64::from(options.rows) / fill_seconds,
        fill_peak_bytes: fill_peak,
        fill_peak_beside_table_bytes: beside,
        group_seconds,
        step_seconds_median: median(steps.iter().map(|step| step.seconds).collect()),
        steps,
        accesses: counters.accesses,
        hit_rate: counters.hits as f64 / counters.accesses as f64,
        records_in: trained.records_in,
        records_out: trained.records_out,
        bytes_in: trained.bytes_in,
        bytes_out: trained.bytes_out,
        list_bytes: trained.list_bytes,
        host_seconds: trained.host_nanoseconds as f64 * 1e-9,
        flush_seconds,
        flush_records: flushed.records_out - trained.records_out,
        end_anonymous_bytes: anonymous,
        end_file_bytes: of_files,
        file_bytes: file.0,
        file_disk_bytes: file.1,
        open_seconds: file.2,
    }
}

impl Run {
    fn print(&self) {
        let known = |bytes: Option<u64>| bytes.map_or("not known here".into(), megabytes);
        println!("\n| store in {:?} | |\n|---|---:|", self.store);
        let line = |what: &str, found: String| println!("| {what} | {found} |");
        line("made and filled", format!("{:.2} s, {:.2e} rows/s", self.fill_seconds, self.fill_rows_per_second));
        line("peak memory by then", known(self.fill_peak_bytes));
        line("of it beside the table and what was there before", known(self.fill_peak_beside_table_bytes));
        line("group made", format!("{:.2} s", self.group_seconds));
        line("step, median", format!("{:.1} ms", self.step_seconds_median * 1e3));
        line("hits", format!("{:.1} % of {} accesses", self.hit_rate * 100.0, self.accesses));
        let bytes = |records: u64, bytes: u64| format!("{records} records, {}", megabytes(bytes));
        line("to the device, all steps", bytes(self.records_in, self.bytes_in));
        line("back, all steps", bytes(self.records_out, self.bytes_out));
        line("lists of missing rows", megabytes(self.list_bytes));
        line("host's part, all steps", format!("{:.1} ms", self.host_seconds * 1e3));
        line("flush", format!("{:.2} s, {} records", self.flush_seconds, self.flush_records));
        line("memory at the end, device buffers of a software adapter included", known(self.end_anonymous_bytes));
        line("pages of files", known(self.end_file_bytes));
        if let Some(seconds) = self.open_seconds {
            line("file", format!("{} long, {} on the disk", known(self.file_bytes), known(self.file_disk_bytes)));
            line("opened again", format!("{:.1} ms", seconds * 1e3));
        }
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// A figure of this process's memory, where the system tells.
fn status(name: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}

/// The peak is counted anew from here; what there is now.
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
