//! A whole training step, forward and backward, on the CPU backend and on a GPU if there is an adapter. Timestamps of the device measure
//! the GPU's time. A device without timestamps is measured by the wall clock, and the output says so.
#![allow(missing_docs, reason = "criterion's macros make public functions")]
#![allow(clippy::print_stdout, reason = "prints the adapter that the figures come from")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap ends the benchmark")]

mod support;

use std::time::Duration;

use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use hotrow::{
    Batch, Context, CpuGroup, Group, GroupConfig, Init, Optimizer, Pooling, Precision, Timeline, adapter,
    wgpu::{self, util::DeviceExt as _},
};
use rand::SeedableRng as _;
use rand_distr::Distribution as _;

/// 51 MB at FP32: more than most caches of CPUs and GPUs, and quickly filled.
const ROWS: u32 = 200_000;
/// A usual width of a recommender's tables; a multiple of a workgroup's 64 lanes.
const DIM: u32 = 64;
/// 5 % of the rows train in FP32, one of the shares that Yang 2020 plots. With this skew there are hits, misses and
/// evictions in every step.
const CACHE: u32 = ROWS / 20;
/// Small enough for a software driver to end within a minute. On a card, launches take much of the time at this size.
const BAGS: u32 = 1024;
/// Indices of a bag, so that pooling adds rows and a batch has repeated rows to merge.
const POOLED: u32 = 8;
/// Number of different batches, so that rows leave the cache.
const BATCHES: usize = 8;

fn config(precision: Precision) -> GroupConfig {
    let mut config = GroupConfig::new(&[ROWS], DIM);
    config.precision = precision;
    config.cache_rows = CACHE;
    config.optimizer = Optimizer::row_wise_adagrad(0.05);
    config.init = Init::Uniform { low: -0.1, high: 0.1 };
    config
}

fn batches() -> Vec<Vec<u32>> {
    let zipf = rand_distr::Zipf::new(f64::from(ROWS), 1.05).unwrap();
    let mut source = rand_pcg::Pcg64::seed_from_u64(1);
    let mut batch = || (0..BAGS * POOLED).map(|_| zipf.sample(&mut source) as u32 - 1).collect();
    (0..BATCHES).map(|_| batch()).collect()
}

fn offsets() -> Vec<u32> {
    (0..=BAGS).map(|bag| bag * POOLED).collect()
}

/// FP32 as the baseline, INT8 with a byte for each code, INT4 with two codes in a byte.
const PRECISIONS: [Precision; 3] = [Precision::Fp32, Precision::Int8, Precision::Int4];

fn on_cpu(criterion: &mut Criterion) {
    let (batches, offsets) = (batches(), offsets());
    let grads = vec![1e-3; (BAGS * DIM) as usize];
    let mut group = criterion.benchmark_group("step/cpu");
    group.throughput(Throughput::Elements(u64::from(BAGS * POOLED))).sample_size(20);
    for precision in PRECISIONS {
        group.bench_function(format!("{precision:?}").to_lowercase(), |bencher| {
            let mut table = CpuGroup::new(config(precision)).unwrap();
            let mut turn = batches.iter().cycle();
            bencher.iter(|| {
                table.forward(turn.next().unwrap(), &offsets, None).unwrap();
                table.backward(&grads).unwrap();
            });
        });
    }
    group.finish();
}

fn on_gpu(criterion: &mut Criterion) {
    let context = match adapter::open_best(adapter::Wanted::Any) {
        Ok(context) => context,
        Err(reason) => return println!("step/gpu left out: {reason}"),
    };
    support::announce("step/gpu", &context);
    let mut group = criterion.benchmark_group("step/gpu");
    // Flat sampling: a software driver takes some 100 ms a step, and samples of growing length would take minutes.
    group.throughput(Throughput::Elements(u64::from(BAGS * POOLED))).sample_size(10).sampling_mode(SamplingMode::Flat);
    for precision in PRECISIONS {
        group.bench_function(format!("{precision:?}").to_lowercase(), |bencher| {
            let mut steps = Steps::new(&context, precision);
            bencher.iter_custom(|n| (0..n).map(|_| steps.next()).sum());
        });
    }
    group.finish();
}

/// Steps as in `hotrow train`, with 256 texts of 85 words. Many runs work side by side, each on one thread.
fn on_one_thread(criterion: &mut Criterion) {
    const ROWS: u32 = 70_000;
    const BAGS: u32 = 256;
    const POOLED: u32 = 85;
    let zipf = rand_distr::Zipf::new(f64::from(ROWS), 1.09).unwrap();
    let mut source = rand_pcg::Pcg64::seed_from_u64(1);
    // Frequent words lie anywhere in the table: 40,503 has no divisor in common with the number of rows.
    let mut word = || (u64::from(zipf.sample(&mut source) as u32) * 40_503 % u64::from(ROWS)) as u32;
    let batches: Vec<Vec<u32>> = (0..40).map(|_| (0..BAGS * POOLED).map(|_| word()).collect()).collect();
    let offsets: Vec<u32> = (0..=BAGS).map(|bag| bag * POOLED).collect();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let mut group = criterion.benchmark_group("step/one-thread");
    group.throughput(Throughput::Elements(u64::from(BAGS * POOLED))).sample_size(20);
    for precision in Precision::ALL {
        for (percent, ways) in [(0, 32), (5, 32), (5, 1), (50, 32)] {
            let name = format!("{precision:?}/{percent}%/{ways}-way").to_lowercase();
            group.bench_function(name, |bencher| {
                let mut config = GroupConfig::new(&[ROWS], 32).with_pooling(Pooling::Mean).with_ways(ways);
                config.precision = precision;
                config.cache_rows = ROWS / 100 * percent;
                config.optimizer = Optimizer::adagrad(0.05);
                config.init = Init::Uniform { low: -0.1, high: 0.1 };
                let mut table = CpuGroup::new(config).unwrap();
                let grads = vec![1e-3; BAGS as usize * 32];
                let mut turn = batches.iter().cycle();
                let mut step = || {
                    let outputs = table.forward(turn.next().unwrap(), &offsets, None).unwrap();
                    table.backward(&grads).unwrap();
                    outputs
                };
                bencher.iter(|| pool.install(&mut step));
            });
        }
    }
    group.finish();
}

/// Steps on the device. All their data is uploaded beforehand.
struct Steps {
    context: Context,
    group: Group,
    batches: Vec<wgpu::Buffer>,
    offsets: wgpu::Buffer,
    outputs: wgpu::Buffer,
    grads: wgpu::Buffer,
    done: usize,
    timeline: Timeline,
}

impl Steps {
    fn new(context: &Context, precision: Precision) -> Self {
        let device = context.device();
        let storage = |words: &[u32]| {
            device.create_buffer_init(&wgpu::util::BufferInitDescriptor {
                label: Some("step"),
                contents: bytemuck::cast_slice(words),
                usage: wgpu::BufferUsages::STORAGE,
            })
        };
        let n = (BAGS * DIM) as usize;
        Self {
            group: Group::new(context, config(precision)).unwrap(),
            batches: batches().iter().map(|batch| storage(batch)).collect(),
            offsets: storage(&offsets()),
            outputs: storage(&vec![0; n]),
            grads: storage(&vec![1e-3f32.to_bits(); n]),
            done: 0,
            timeline: Timeline::new(context),
            context: context.clone(),
        }
    }

    /// Submits one step and waits for it. Returns its time.
    fn next(&mut self) -> Duration {
        let indices = &self.batches[self.done % BATCHES];
        self.done += 1;
        let batch = Batch { indices: Some(indices.slice(..)), offsets: self.offsets.slice(..), weights: None };
        let (group, outputs, grads) = (&mut self.group, &self.outputs, &self.grads);
        let record = |encoder: &mut wgpu::CommandEncoder| {
            group.record_forward(encoder, &batch, outputs.slice(..)).unwrap();
            group.record_backward(encoder, grads.slice(..)).unwrap();
        };
        support::timed(&self.context, &self.timeline, |_| {}, record)
    }
}

criterion_group!(benches, on_cpu, on_one_thread, on_gpu);
criterion_main!(benches);
