//! Accesses a second of the cache simulator, on Zipf-distributed rows.
#![allow(missing_docs, reason = "criterion's macros make public functions")]

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use hotrow::{
    Policy,
    simulate::{Geometry, Simulator},
};
use rand::SeedableRng as _;
use rand_distr::Distribution as _;

/// The simulator's metadata exceed a core's caches.
const ROWS: u32 = 1_000_000;
/// About the skew of word frequencies.
const EXPONENT: f64 = 1.05;
/// Twenty accesses for each slot, so that filling the cache is a small part of a run.
const ACCESSES: usize = 200_000;
/// Batches of one access, as hit rates are usually defined, and batches as in training.
const BATCHES: [usize; 2] = [1, 4096];

fn simulate(criterion: &mut Criterion) {
    let Ok(zipf) = rand_distr::Zipf::new(f64::from(ROWS), EXPONENT) else { unreachable!("legal parameters") };
    let ids: Vec<u32> =
        zipf.sample_iter(rand_pcg::Pcg64::seed_from_u64(1)).take(ACCESSES).map(|rank| rank as u32 - 1).collect();
    let mut group = criterion.benchmark_group("simulate");
    group.throughput(Throughput::Elements(ACCESSES as u64)).sample_size(10);
    for policy in [Policy::Lru, Policy::Lfu] {
        // Direct-mapped, the device's 32 ways, fully associative.
        for ways in [1, 32, 0] {
            for batch in BATCHES {
                let Ok(shape) = Geometry::of_percent(u64::from(ROWS), 1.0, ways) else { unreachable!("a legal shape") };
                let Ok(new) = Simulator::new(shape.sets, shape.ways, policy) else { unreachable!("small enough") };
                group.bench_function(format!("{policy:?}/ways-{ways}/batch-{batch}").to_lowercase(), |bencher| {
                    bencher.iter_batched(
                        || new.clone(),
                        |mut cache| {
                            ids.chunks(batch).for_each(|ids| cache.step(ids));
                            cache
                        },
                        BatchSize::LargeInput,
                    );
                });
            }
        }
    }
    group.finish();
}

criterion_group!(benches, simulate);
criterion_main!(benches);
