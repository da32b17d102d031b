//! A whole training step, forward and backward, on a GPU if there is an adapter (`peers` measures the CPU backend's). Timestamps of the device
//! measure its time. A device without timestamps is measured by the wall clock, and the output says so. Then what the random bits of rounding cost.
#![allow(missing_docs, reason = "criterion's macros make public functions")]
#![allow(clippy::print_stdout, reason = "prints the adapter that the figures come from")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap ends the benchmark")]

mod support;

use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use hotrow::{
    Batch, Group, GroupConfig, Init, Mode, Optimizer, Precision, Timeline, adapter,
    internals::rng::pcg4d,
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
    GroupConfig::new(&[ROWS], DIM)
        .with_precision(precision)
        .with_cache_rows(CACHE)
        .with_optimizer(Optimizer::row_wise_adagrad(0.05))
        .with_init(Init::Uniform { low: -0.1, high: 0.1 })
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

fn on_gpu(criterion: &mut Criterion) {
    let context = match adapter::open_best() {
        Ok(context) => context,
        Err(reason) => return println!("step/gpu left out: {reason}"),
    };
    support::announce("step/gpu", &context);
    let mut group = criterion.benchmark_group("step/gpu");
    // Flat sampling: a software driver takes some 100 ms a step, and samples of growing length would take minutes.
    group.throughput(Throughput::Elements(u64::from(BAGS * POOLED))).sample_size(10).sampling_mode(SamplingMode::Flat);
    let storage = |words: &[u32]| {
        let (contents, usage) = (bytemuck::cast_slice(words), wgpu::BufferUsages::STORAGE);
        context.device().create_buffer_init(&wgpu::util::BufferInitDescriptor { label: Some("step"), contents, usage })
    };
    let n = (BAGS * DIM) as usize;
    for precision in PRECISIONS {
        group.bench_function(format!("{precision:?}").to_lowercase(), |bencher| {
            // Everything is uploaded beforehand.
            // Gradients of one value could move faster than data. Outputs are only written.
            let grads = (0..n).map(|i| (1e-3 * (i as f32).sin()).to_bits()).collect();
            let [offsets, outputs, grads] = [offsets(), vec![0; n], grads].map(|words| storage(&words));
            let batches: Vec<_> = batches().iter().map(|batch| storage(batch)).collect();
            let (mut table, timeline) = (Group::new(&context, config(precision)).unwrap(), Timeline::new(&context));
            let mut next = batches.iter().cycle();
            let mut step = || {
                let indices = next.next().unwrap();
                let batch = Batch { indices: Some(indices.slice(..)), offsets: offsets.slice(..), weights: None };
                let record = |encoder: &mut wgpu::CommandEncoder| {
                    table.encode_forward(encoder, &batch, outputs.slice(..), Mode::Train).unwrap();
                    table.encode_backward(encoder, grads.slice(..)).unwrap();
                };
                support::timed(&context, &timeline, |_| {}, record)
            };
            bencher.iter_custom(|n| (0..n).map(|_| step()).sum());
        });
    }
    group.finish();
}

/// Values of a row that is rounded: so many that the shortest loop over hashes is long enough to become vector code.
const WIDE: usize = 1024;

type Round = fn(u32, &[f32; WIDE], &mut [u16; WIDE]);

/// FP16 of a value that is normal as a half: `more`, below 2^13, is added to what is cut off.
#[inline(always)]
fn half(x: f32, more: u32) -> u16 {
    let magnitude = (x.to_bits() & !(1 << 31)) + more;
    (x.to_bits() >> 16 & 0x8000 | magnitude.wrapping_sub(112 << 23) >> 13) as u16
}

#[multiversion::multiversion(targets = "simd")]
fn nearest(_: u32, values: &[f32; WIDE], halves: &mut [u16; WIDE]) {
    halves.iter_mut().zip(values).for_each(|(half_, x)| *half_ = half(*x, 0xfff + (x.to_bits() >> 13 & 1)));
}

/// A hash for each value.
#[multiversion::multiversion(targets = "simd")]
fn each(row: u32, values: &[f32; WIDE], halves: &mut [u16; WIDE]) {
    for e in 0..WIDE {
        halves[e] = half(values[e], pcg4d([1, 2, row, e as u32])[0] >> 19);
    }
}

/// A draw for each value, up with the probability of its rest (Zhang 2018, 3.1, before its raw bits).
fn bernoulli(row: u32, values: &[f32; WIDE], halves: &mut [u16; WIDE]) {
    let mut source = rand_pcg::Pcg64::seed_from_u64(row.into());
    for (half_, x) in halves.iter_mut().zip(values) {
        let up = rand_distr::Bernoulli::new(f64::from(x.to_bits() & 0x1fff) / 8192.0).unwrap().sample(&mut source);
        *half_ = half(*x, 0) + u16::from(up);
    }
}

/// A hash for `PER` values, as SPEC 2 has it: 4 take 24 of its bits, 8 take 16, 16 take 8.
#[inline(always)]
fn vector<const PER: usize>(row: u32, values: &[f32; WIDE], halves: &mut [u16; WIDE]) {
    let mut hashes = [[0; 4]; WIDE / 4];
    for (k, words) in hashes[..WIDE / PER].iter_mut().enumerate() {
        *words = pcg4d([1, 2, row, (PER * k) as u32]).map(|word| word ^ word >> 16);
    }
    let (words, pairs): (&[u32; WIDE], &[[u16; WIDE]; 2]) = (bytemuck::cast_ref(&hashes), bytemuck::cast_ref(&hashes));
    let bytes: &[[u8; WIDE]; 4] = bytemuck::cast_ref(&hashes);
    let more: [u32; WIDE] = match PER {
        4 => words.map(|word| word >> 19),
        8 => pairs[0].map(|pair| u32::from(pair) >> 3),
        _ => bytes[0].map(|byte| u32::from(byte) << 5 | 1 << 4),
    };
    for e in 0..WIDE {
        halves[e] = half(values[e], more[e]);
    }
}

#[multiversion::multiversion(targets = "simd")]
fn of_4(row: u32, values: &[f32; WIDE], halves: &mut [u16; WIDE]) {
    vector::<4>(row, values, halves);
}

#[multiversion::multiversion(targets = "simd")]
fn of_8(row: u32, values: &[f32; WIDE], halves: &mut [u16; WIDE]) {
    vector::<8>(row, values, halves);
}

#[multiversion::multiversion(targets = "simd")]
fn of_16(row: u32, values: &[f32; WIDE], halves: &mut [u16; WIDE]) {
    vector::<16>(row, values, halves);
}

/// The generator of [`Rounding::Stochastic`](hotrow::Rounding), taken out: rows to FP16 by one CPU thread. The rounding itself is the same in each line.
fn random_bits(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("rounding/fp16");
    group.throughput(Throughput::Elements(128 * WIDE as u64));
    let rows: Vec<[f32; WIDE]> =
        (0..128).map(|row| std::array::from_fn(|e| 0.1 + (row as f32 + e as f32 / 7.0).sin().abs())).collect();
    let lines: [(&str, Round); 6] = [
        ("nearest", nearest),
        ("a Bernoulli draw an element", bernoulli),
        ("24 bits, a hash an element", each),
        ("24 bits, a hash for 4", of_4),
        ("16 bits, a hash for 8", of_8),
        ("8 bits, a hash for 16", of_16),
    ];
    let mean = |halves: &[u16; WIDE]| {
        halves.iter().map(|&half| f64::from(hotrow::internals::codec::f32_from_half(half.into()))).sum::<f64>()
    };
    let bias = |round: Round| {
        let mut halves = [0; WIDE];
        let of_row = (0u32..).zip(&rows).map(|(row, values)| {
            round(row, values, &mut halves);
            mean(&halves) - values.iter().copied().map(f64::from).sum::<f64>()
        });
        of_row.sum::<f64>() / (128 * WIDE) as f64
    };
    let down: Round = |_, values, halves| halves.iter_mut().zip(values).for_each(|(half_, x)| *half_ = half(*x, 0));
    assert!(bias(down) < -1e-4, "rounding towards 0 has a bias");
    for (name, round) in lines {
        // What is measured rounds without bias over the rows.
        assert!(bias(round).abs() < 1e-5, "{name}: {}", bias(round));
        let mut halves = [0; WIDE];
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                (0u32..).zip(&rows).for_each(|(row, values)| round(row, std::hint::black_box(values), &mut halves));
                halves
            });
        });
    }
    group.finish();
}

criterion_group!(benches, on_gpu, random_bits);
criterion_main!(benches);
