//! A staged table far larger than the memory of a device: filled, trained and flushed, in RAM and in a file. Measures the host memory beside
//! the table while it is filled, and the bytes that cross in a step.
//!
//! `cargo bench --bench large -- --rows 40000000` fills 3 GB at INT4 x 128.
#![allow(clippy::print_stdout, reason = "a benchmark prints its results")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap ends the benchmark")]

#[path = "support/run.rs"]
mod run;

use std::fs;

use clap::Parser;
use hotrow::{
    Context, FileStore, Group, GroupConfig, Layout, Optimizer, Placement, Precision, RamStore, SharedStore, adapter,
    prelude::*, store,
};
use hotrow_cli::lab::timed;
use hotrow_cli::report::run::{Machine, Run};
use hotrow_cli::report::units::{Times, bytes};
use hotrow_cli::report::{Setting, Unit, table};
use rand::SeedableRng as _;
use rand_distr::Distribution as _;
use run::{Common, memory};

/// The most memory that filling may take beside the table, in bytes.
const LIMIT: u64 = 256 << 20;
/// Coprime to every smaller number of rows. Spreads the frequent rows over the whole table, as in a real table.
const SPREAD: u64 = 4_294_967_291;
/// Indices of a bag, and bags of a batch.
const POOLED: u32 = 8;
const BAGS: u32 = 8192;

#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    common: Common,
    /// Rows of the table, whose cache has a hundredth of them
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(3200..=4_294_967_290))]
    rows: u32,
    /// Steps
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
}

fn main() {
    let mut options = Options::parse();
    if !options.common.wants("large") {
        return;
    }
    if options.common.test {
        options.steps = options.steps.min(3);
    }
    let context = match adapter::open_best(adapter::Wanted::Any) {
        Ok(context) => context,
        Err(reason) => return println!("large left out: {reason}"),
    };
    let config = GroupConfig::new(&[options.rows], 128)
        .with_precision(Precision::Int4)
        .with_placement(Placement::Staged)
        .with_cache_rows(options.rows / 100)
        .with_optimizer(Optimizer::row_wise_adagrad(0.05));
    let layout = Layout::new(&config, u64::MAX).unwrap();
    let mut run = options.common.start("large");
    run.on(Machine::of(&context));
    let (rows, slots, table_bytes) = (options.rows, layout.slots(), bytes(layout.table_bytes() as f64));
    run.describe(
        "large",
        format!("{rows} rows x 128 INT4, row-wise AdaGrad: {table_bytes}; cache of {slots} rows; steps of {} indices, Zipf 1.05", BAGS * POOLED),
    );
    let zipf = rand_distr::Zipf::new(f64::from(rows), 1.05).unwrap();
    let mut source = rand_pcg::Pcg64::seed_from_u64(1);
    let mut index = || ((zipf.sample(&mut source) as u64 - 1) * SPREAD % u64::from(rows)) as u32;
    let batches: Vec<Vec<u32>> = (0..options.steps).map(|_| (0..BAGS * POOLED).map(|_| index()).collect()).collect();
    for place in ["ram", "file"] {
        one(&context, &config, &layout, &batches, (place, &mut run));
    }
    let title = "Bytes and records of all steps.";
    options.common.finish(&run, &[(title.to_owned(), table(&run.records, &["what"], "store"))]);
}

fn one(context: &Context, config: &GroupConfig, layout: &Layout, batches: &[Vec<u32>], (place, run): (&str, &mut Run)) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("table");
    // Restarts the measurement of the peak, where the system has one.
    let before = fs::write("/proc/self/clear_refs", "5").ok().and_then(|()| memory("/proc/self/status", "VmHWM"));
    let (shared, filled) = timed(|| {
        let shared = match place {
            "ram" => SharedStore::new(RamStore::new(layout).unwrap()),
            _ => SharedStore::new(FileStore::create(&path, config).unwrap()),
        };
        shared.with_mut(|store| store::fill(store, config, layout, None)).unwrap();
        shared
    });
    let in_ram = if place == "ram" { layout.table_bytes() } else { 0 };
    let peak = memory("/proc/self/status", "VmHWM");
    let beside = before.zip(peak).map(|(before, peak)| peak.saturating_sub(before + in_ram));
    assert!(beside.is_none_or(|beside| beside <= LIMIT), "filling took {beside:?} bytes beside the table");

    let mut group = Group::with_store(context, config.clone(), shared.clone()).unwrap();
    let offsets: Vec<u32> = (0..=BAGS).map(|bag| bag * POOLED).collect();
    let grads = vec![1e-3; (BAGS * config.dim) as usize];
    let (mut steps, mut crossed) = (Vec::new(), Vec::new());
    group.prefetch(&batches[0], &offsets, None).unwrap();
    for k in 0..batches.len() {
        let before = group.traffic().unwrap().bytes();
        let ((), seconds) = timed(|| {
            assert!(group.forward_prefetched().unwrap().iter().all(|x| x.is_finite()));
            if let Some(next) = batches.get(k + 1) {
                group.prefetch(next, &offsets, None).unwrap();
            }
            group.backward(&grads).unwrap();
        });
        crossed.push((group.traffic().unwrap().bytes() - before) as f64);
        steps.push(seconds);
    }
    let trained = group.traffic().unwrap();
    let (flushed, flush) = timed(|| group.flush());
    flushed.unwrap();
    let records = group.traffic().unwrap().records_out - trained.records_out;
    // The rows in the store equal the group's.
    group.reset().unwrap();
    let rows: Vec<u32> = batches[0].iter().copied().take(1000).collect();
    let values = group.read_rows(&rows).unwrap();
    assert!(shared.read_rows(layout, &rows).unwrap() == values, "the store differs from the group");
    let hits = group.counters().unwrap()[0].hit_rate();
    let mut at = run.at("large", &Setting::default().with("store", place));
    for (what, value, unit) in [
        ("made and filled", Some(filled), Unit::Seconds),
        ("peak beside the table and what was there before", beside.map(|bytes| bytes as f64), Unit::Bytes),
        ("hits", Some(hits), Unit::Share),
        ("records to the device", Some(trained.records_in as f64), Unit::Count),
        ("records back", Some(trained.records_out as f64), Unit::Count),
        ("bytes a step, median", Some(Times::of(crossed).median), Unit::Bytes),
        ("host part", Some(trained.host_nanoseconds as f64 * 1e-9), Unit::Seconds),
        ("flush", Some(flush), Unit::Seconds),
        ("records flushed", Some(records as f64), Unit::Count),
    ] {
        at.push(what, value, unit);
    }
    at.timed("step", Times::of(steps));
}
