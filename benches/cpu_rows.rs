//! Row kernels of the CPU in the shapes of TBE's own benchmarks, beside TBE's figures: a million rows, 2,048 bags of 20, the best time of
//! many runs in nanoseconds a row. Sums are straight from the records, on one thread (as TBE's figures) and on all threads; `peers` times
//! whole calls. Page table walks slow down uniform rows; with glibc, `GLIBC_TUNABLES=glibc.malloc.hugetlb=1` puts the tables into huge pages.
#![allow(missing_docs, reason = "criterion's macros make public functions")]
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap ends the benchmark")]

use std::{cell::Cell, hint::black_box, time::Duration, time::Instant};

use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use hotrow::{
    GroupConfig, Layout, Optimizer, OptimizerKind, Precision, RandomBits, Rounding,
    codec::Noise,
    internals::rows::{self, List, Records, Rule},
};
use rand::{RngExt as _, SeedableRng as _};
use rand_distr::Distribution as _;
use rayon::prelude::*;

const ROWS: u32 = 1_000_000;
const BAGS: usize = 2048;
const POOLED: usize = 20;
const DIMS: [u32; 2] = [64, 128];
/// Number of rows that FBGEMM prefetches ahead. The loops of the optimisers below do the same.
const AHEAD: usize = 16;

/// FBGEMM's time of a row, by name, dim and law. Measured at commit 71d6f8b on one thread of a 2-core AMD EPYC (AVX2, AVX-512), gcc 12.2,
/// best of 15, within 20 %: `GenerateEmbeddingSpMDM`, `GenerateEmbeddingSpMDMNBit`, `FloatOrHalfToFused8BitRowwiseQuantizedSBFloat`,
/// `GenerateSparseAdaGrad`, `GenerateRowWiseSparseAdaGradFused`.
const FBGEMM: &str = include_str!("results/fbgemm-cpu.csv");

/// The indices of all bags. The ranks of Zipf's law are the rows, so frequent rows lie side by side.
fn indices(zipf: bool) -> Vec<u32> {
    let mut source = rand_pcg::Pcg64::seed_from_u64(1);
    let law = rand_distr::Zipf::new(f64::from(ROWS), 1.05).unwrap();
    let mut index = || if zipf { law.sample(&mut source) as u32 - 1 } else { source.random_range(0..ROWS) };
    (0..BAGS * POOLED).map(|_| index()).collect()
}

fn offsets() -> Vec<u32> {
    (0..=BAGS).map(|bag| (bag * POOLED) as u32).collect()
}

fn layout_of(precision: Precision, kind: OptimizerKind, dim: u32) -> Layout {
    let optimizer = Optimizer::sgd(0.01).with_kind(kind);
    Layout::new(&GroupConfig::new(&[ROWS], dim).with_precision(precision).with_optimizer(optimizer), u64::MAX).unwrap()
}

fn random_row(source: &mut rand_pcg::Pcg64, dim: u32) -> Vec<f32> {
    (0..dim).map(|_| source.random_range(-1.0..1.0)).collect()
}

fn noise(rounding: Rounding) -> Noise {
    let (random_bits, stripe) = (RandomBits::TwentyFour, hotrow::ranks::Stripe::ALL);
    Noise { rounding, random_bits, seed: 1, step: 1, purpose: 0, stripe }
}

/// A table of records: 256 different rows, repeated. The place of a row decides its time, its values do not.
fn table(layout: &Layout) -> Vec<u32> {
    let mut source = rand_pcg::Pcg64::seed_from_u64(2);
    let noise = noise(Rounding::Nearest);
    let words = layout.row.record_words as usize;
    let mut few = vec![0; 256 * words];
    for (row, record) in (0..).zip(few.chunks_exact_mut(words)) {
        let weights = random_row(&mut source, layout.row.dim);
        assert!(rows::pack(&layout.row, &noise, row, &weights, &vec![0.0; layout.row.state as usize], record));
    }
    few.iter().copied().cycle().take(ROWS as usize * words).collect()
}

/// One line of figures. The best time is printed at the end.
struct Line<'a> {
    name: &'a str,
    dim: u32,
    zipf: bool,
    threads: usize,
}

impl Line<'_> {
    /// Runs `work` under criterion. A run goes through `rows` rows.
    fn measure(&self, criterion: &mut Criterion, rows: usize, mut work: impl FnMut() + Send) {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(self.threads).build().unwrap();
        let best = Cell::new(Duration::MAX);
        let law = if self.zipf { "zipf" } else { "uniform" };
        let mut group = criterion.benchmark_group(format!("rows/{}", self.name));
        group.throughput(Throughput::Elements(rows as u64)).sampling_mode(SamplingMode::Flat);
        group.sample_size(15).warm_up_time(Duration::from_millis(100)).measurement_time(Duration::from_millis(500));
        group.bench_function(format!("D{}-{law}-{}t", self.dim, self.threads), |bencher| {
            bencher.iter_custom(|n| {
                let mut total = Duration::ZERO;
                for _ in 0..n {
                    let took = pool.install(|| {
                        let start = Instant::now();
                        work();
                        start.elapsed()
                    });
                    best.set(best.get().min(took));
                    total += took;
                }
                total
            });
        });
        group.finish();
        if best.get() < Duration::MAX {
            self.print(best.get().as_nanos() as f64 / rows as f64);
        }
    }

    /// `FIGURE,name,dim,law,threads,ns a row,FBGEMM's ns a row,ratio`
    fn print(&self, ns: f64) {
        let law = if self.zipf { "zipf" } else { "uniform" };
        let line = format!("{},{},{law},", self.name, self.dim);
        let theirs = FBGEMM
            .lines()
            .filter(|_| self.threads == 1)
            .find_map(|known| known.strip_prefix(&line)?.parse::<f64>().ok());
        let beside = theirs.map_or(",".into(), |theirs| format!("{theirs},{:.2}", ns / theirs));
        println!("FIGURE,{},{},{law},{},{ns:.1},{beside}", self.name, self.dim, self.threads);
    }
}

/// One thread, and all threads.
fn threads() -> Vec<usize> {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    if all > 1 { vec![1, all] } else { vec![1] }
}

fn sums(criterion: &mut Criterion) {
    let offsets = offsets();
    for (precision, name) in
        Precision::ALL.into_iter().zip(["sum-fp32", "sum-fp16", "sum-int8", "sum-int4", "sum-int2"])
    {
        for dim in DIMS {
            let layout = layout_of(precision, OptimizerKind::Sgd, dim);
            let words = table(&layout);
            let records = Records { layout: &layout.row, words: &words };
            let mut outputs = vec![0.0; BAGS * dim as usize];
            for zipf in [false, true] {
                let rows = indices(zipf);
                for threads in threads() {
                    // Whole bags, 64 for each task.
                    let each = if threads == 1 { BAGS } else { 64 };
                    Line { name, dim, zipf, threads }.measure(criterion, rows.len(), || {
                        outputs.par_chunks_mut(each * dim as usize).enumerate().for_each(|(part, outputs)| {
                            let bags = part * each..part * each + outputs.len() / dim as usize;
                            let offsets = &offsets[bags.start..=bags.end];
                            rows::sum_records(records, List { rows: &rows, offsets, factors: &[] }, outputs);
                        });
                        black_box(&mut outputs);
                    });
                }
            }
        }
    }
}

fn packs(criterion: &mut Criterion) {
    for dim in DIMS {
        let layout = layout_of(Precision::Int8, OptimizerKind::Sgd, dim);
        let mut source = rand_pcg::Pcg64::seed_from_u64(2);
        let weights: Vec<f32> = random_row(&mut source, dim * 4096);
        let mut words = vec![0; 4096 * layout.row.record_words as usize];
        for (rounding, name) in [(Rounding::Nearest, "pack-int8"), (Rounding::Stochastic, "pack-int8-stochastic")] {
            let noise = noise(rounding);
            Line { name, dim, zipf: false, threads: 1 }.measure(criterion, 4096, || {
                let records = words.chunks_exact_mut(layout.row.record_words as usize);
                for (row, (weights, record)) in (0..).zip(weights.chunks_exact(dim as usize).zip(records)) {
                    black_box(rows::pack(&layout.row, &noise, row, weights, &[], record));
                }
            });
        }
    }
}

/// FP32 rows with their state, moved index by index, each by its own gradient or by the gradient of its bag.
fn optimisers(criterion: &mut Criterion) {
    let cases = [
        ("adagrad", OptimizerKind::AdaGrad, 1),
        ("row-wise-adagrad", OptimizerKind::RowWiseAdaGrad, 1),
        ("row-wise-adagrad-of-bags", OptimizerKind::RowWiseAdaGrad, POOLED),
    ];
    for (name, kind, shared) in cases {
        for dim in DIMS {
            let width = (dim + layout_of(Precision::Fp32, kind, dim).row.state) as usize;
            let dim_floats = dim as usize;
            let mut table = vec![1.0f32; ROWS as usize * width];
            let mut source = rand_pcg::Pcg64::seed_from_u64(2);
            let grads = random_row(&mut source, (BAGS * POOLED / shared) as u32 * dim);
            let rule = Rule::plain(kind, 0.01, 1e-8, 0.0);
            for zipf in [false, true] {
                let indices = indices(zipf);
                Line { name, dim, zipf, threads: 1 }.measure(criterion, indices.len(), || {
                    let mut before = vec![0.0; width];
                    for (k, &row) in indices.iter().enumerate() {
                        if let Some(&next) = indices.get(k + AHEAD) {
                            rows::prefetch(&table[next as usize * width..][..width]);
                        }
                        let grads = &grads[k / shared * dim_floats..][..dim_floats];
                        let row = &mut table[row as usize * width..][..width];
                        let (weights, states) = row.split_at_mut(dim_floats);
                        rows::optimise(&rule, grads, weights, states, &mut before);
                    }
                });
            }
        }
    }
}

/// Packed records, unpacked, moved and packed again with stochastic rounding.
fn packed_optimisers(criterion: &mut Criterion) {
    let cases =
        [("row-wise-adagrad-of-bags-fp16", Precision::Fp16), ("row-wise-adagrad-of-bags-int8", Precision::Int8)];
    for (name, precision) in cases {
        for dim in DIMS {
            let layout = layout_of(precision, OptimizerKind::RowWiseAdaGrad, dim);
            let (width, dim_floats) = (layout.row.record_words as usize, dim as usize);
            let mut table = table(&layout);
            let mut source = rand_pcg::Pcg64::seed_from_u64(2);
            let grads = random_row(&mut source, BAGS as u32 * dim);
            let rule = Rule::plain(OptimizerKind::RowWiseAdaGrad, 0.01, 1e-8, 0.0);
            let noise = noise(Rounding::Stochastic);
            for zipf in [false, true] {
                let indices = indices(zipf);
                Line { name, dim, zipf, threads: 1 }.measure(criterion, indices.len(), || {
                    let mut floats = vec![0.0; layout.row.row_words as usize];
                    for (k, &row) in indices.iter().enumerate() {
                        if let Some(&next) = indices.get(k + AHEAD) {
                            rows::prefetch(&table[next as usize * width..][..width]);
                        }
                        let record = &mut table[row as usize * width..][..width];
                        let grads = &grads[k / POOLED * dim_floats..][..dim_floats];
                        let (weights, states) = floats.split_at_mut(dim_floats);
                        rows::unpack(&layout.row, record, weights, states);
                        black_box(rows::pack_moved(&layout.row, &rule, &noise, row, grads, &mut floats, record));
                    }
                });
            }
        }
    }
}

criterion_group!(benches, sums, packs, optimisers, packed_optimisers);
criterion_main!(benches);
