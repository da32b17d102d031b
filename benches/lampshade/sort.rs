//! The sort of (key, position) pairs alone: hotrow's, beside the crate lampshade on the same device. Timestamps measure device time. A device
//! without timestamps is measured by the wall clock, and the output says so.
//!
//! 10^4 to 10^7 pairs; 10^8 on hardware, or if `HOTROW_BENCH_LARGE` is set. At most 10^6 with `--test`, which only checks that the
//! benchmark works.
#![allow(missing_docs, reason = "criterion's macros make public functions")]
#![allow(clippy::print_stdout, reason = "prints the adapter that the figures come from")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap ends the benchmark")]

#[path = "../support/mod.rs"]
mod support;

use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use hotrow::{
    Context, Error, Sorter, Timeline, adapter, requirements,
    wgpu::{self, BufferUsages, util::DeviceExt as _},
};
use lampshade::KeyValueSoaSorter;
use rand::{RngExt as _, SeedableRng as _};

/// Whole 32-bit keys take four passes, rows of a table of a million take three.
const KEY_BITS: [u32; 2] = [32, 20];

fn sizes(hardware: bool) -> impl Iterator<Item = u32> {
    let tried = std::env::args().any(|argument| argument == "--test");
    let large = !tried && (hardware || std::env::var_os("HOTROW_BENCH_LARGE").is_some());
    // Other sorts are usually compared at 2^24.
    let most = match (tried, large) {
        (true, _) => 6,
        (false, true) => 8,
        (false, false) => 7,
    };
    (4..=most).map(|power| 10u32.pow(power)).chain(large.then_some(1 << 24))
}

fn keys(n: u32, bits: u32) -> Vec<u32> {
    let mut source = rand_pcg::Pcg64::seed_from_u64(u64::from(n));
    (0..n).map(|_| source.random::<u32>() >> (32 - bits)).collect()
}

/// Opens a device with the features and limits that either sort uses.
fn open() -> Result<Context, Error> {
    let chosen = adapter::open_best()?; // for its error if there is no adapter
    let Some(adapter) = adapter::adapters().into_iter().next() else { return Ok(chosen) };
    let theirs = KeyValueSoaSorter::requirements(&adapter);
    let mut wanted = requirements(&adapter);
    wanted.required_features = theirs.features(wanted.required_features);
    wanted.required_limits = theirs.limits(wanted.required_limits);
    let (device, queue) = pollster::block_on(adapter.request_device(&wanted))
        .map_err(|error| Error::Device { reason: error.to_string() })?;
    Context::new(&device, &queue)
}

fn on_device(criterion: &mut Criterion) {
    let context = match open() {
        Ok(context) => context,
        Err(reason) => return println!("sort/gpu left out: {reason}"),
    };
    support::announce("sort/gpu", &context);
    let timeline = Timeline::new(&context);
    let device = context.device();
    let mut group = criterion.benchmark_group("sort");
    group.sample_size(10).sampling_mode(SamplingMode::Flat);
    for n in sizes(context.caps().is_hardware()) {
        group.throughput(Throughput::Elements(u64::from(n)));
        let buffer = |words: &[u32]| {
            let contents = bytemuck::cast_slice(words);
            let usage = BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
            device.create_buffer_init(&wgpu::util::BufferInitDescriptor { label: None, contents, usage })
        };
        let sorter = match Sorter::new(&context, n) {
            Ok(sorter) => sorter,
            Err(reason) => {
                println!("sort/gpu/{n} left out: {reason}");
                continue;
            }
        };
        for bits in KEY_BITS {
            let (source, values) = (buffer(&keys(n, bits)), buffer(&(0..n).collect::<Vec<_>>()));
            group.bench_function(BenchmarkId::new(format!("gpu, {bits} bits"), n), |bencher| {
                let once = || {
                    let record = |encoder: &mut wgpu::CommandEncoder| {
                        sorter.encode_sort(encoder, source.slice(..), Some(values.slice(..)), None, bits).unwrap();
                    };
                    support::timed(&context, &timeline, |_| {}, record)
                };
                once(); // pipelines are built, buffers cleared
                bencher.iter_custom(|times| (0..times).map(|_| once()).sum());
            });
        }
        // lampshade sorts in place and by whole keys. The pairs are restored before each run, before the clock starts.
        let (source, positions) = (buffer(&keys(n, 32)), buffer(&(0..n).collect::<Vec<_>>()));
        let (sorted, values) = (buffer(&vec![0; n as usize]), buffer(&vec![0; n as usize]));
        let mut theirs = KeyValueSoaSorter::new(device, context.queue());
        theirs.prepare_sort(&sorted, &values, n).unwrap();
        let body = if theirs.is_accelerated() { "accelerated" } else { "portable" };
        group.bench_function(BenchmarkId::new(format!("lampshade, 32 bits, {body}"), n), |bencher| {
            let once = || {
                let restore = |encoder: &mut wgpu::CommandEncoder| {
                    encoder.copy_buffer_to_buffer(&source, 0, &sorted, 0, None);
                    encoder.copy_buffer_to_buffer(&positions, 0, &values, 0, None);
                };
                let sort = |encoder: &mut wgpu::CommandEncoder| {
                    theirs.record_reserved_sort(encoder, &sorted, &values, n).unwrap();
                };
                support::timed(&context, &timeline, restore, sort)
            };
            once();
            bencher.iter_custom(|times| (0..times).map(|_| once()).sum());
        });
    }
    group.finish();
}

criterion_group!(benches, on_device);
criterion_main!(benches);
