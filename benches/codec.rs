//! Packing and unpacking rows on the CPU, for each precision and rounding: the cost of a write-back and a fetch without
//! a GPU.
#![allow(missing_docs, reason = "criterion's macros make public functions")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use hotrow::{
    GroupConfig, Layout, Precision, RandomBits, Rounding,
    codec::{self, Noise},
};
use rand::{RngExt as _, SeedableRng as _};

/// The dim of the examples and memory factors of Yang 2020.
const DIM: u32 = 128;
/// 128 KiB of FP32: more than a cache line, and less than a core's own cache.
const ROWS: u32 = 256;

fn codec(criterion: &mut Criterion) {
    let mut source = rand_pcg::Pcg64::seed_from_u64(1);
    let rows: Vec<Vec<f32>> = (0..ROWS).map(|_| (0..DIM).map(|_| source.random_range(-1.0..1.0)).collect()).collect();
    for precision in Precision::ALL {
        let config = GroupConfig::new(&[ROWS], DIM).with_precision(precision);
        let Ok(layout) = Layout::new(&config, u64::MAX) else { unreachable!("dim and rows are legal") };
        let name = format!("{precision:?}").to_lowercase();
        let mut group = criterion.benchmark_group(format!("codec/{name}"));
        group.throughput(Throughput::Elements(u64::from(ROWS * DIM)));
        let mut records = vec![vec![0; layout.row.record_words as usize]; ROWS as usize];
        for rounding in [Rounding::Nearest, Rounding::Stochastic] {
            let noise = Noise {
                rounding,
                random_bits: RandomBits::TwentyFour,
                seed: 1,
                step: 1,
                purpose: 0,
                stripe: hotrow::Stripe::ALL,
            };
            group.bench_function(format!("pack-{rounding:?}").to_lowercase(), |bencher| {
                bencher.iter(|| {
                    for (row, (weights, record)) in (0..).zip(rows.iter().zip(&mut records)) {
                        black_box(codec::pack(&layout.row, &noise, row, black_box(weights), &[], record));
                    }
                });
            });
        }
        let mut out = vec![0.0; DIM as usize];
        group.bench_function("unpack", |bencher| {
            bencher.iter(|| {
                for record in &records {
                    codec::unpack(&layout.row, black_box(record), &mut out);
                    black_box(&out);
                }
            });
        });
        group.finish();
    }
}

criterion_group!(benches, codec);
criterion_main!(benches);
