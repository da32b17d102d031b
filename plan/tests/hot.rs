//! Runs with pinned rows on the CPU backend: hot batches move no rows, and a changed choice of pinned rows reaches the predicted rates.

use hotrow::{
    Bags, Counters, CpuGroup, GroupConfig, Mode, Optimizer, Policy, Precision, internals::rng::pcg4d, prelude::*,
};
use hotrow_plan::scars::{Forecast, HotBatches, Pinned, Profile};

const DIM: u32 = 4;
const ROWS: u32 = 4000;
/// Lookups of a sample.
const FIELDS: usize = 2;
const BATCH: usize = 64;
const WAYS: u32 = 32;
const NONE: [u32; 0] = [];

fn group(cache_rows: u32) -> CpuGroup {
    let config = GroupConfig::new(&[ROWS], DIM)
        .with_precision(Precision::Int8)
        .with_optimizer(Optimizer::sgd(0.1))
        .with_policy(Policy::Static)
        .with_cache_rows(cache_rows);
    CpuGroup::new(config).unwrap()
}

/// Samples of skewed rows: row ~ ROWS^u - 1, shifted by `shift`.
fn samples(n: u32, seed: u32, shift: u32) -> Vec<[u32; FIELDS]> {
    let row = |word: u32| (f64::from(ROWS).powf(f64::from(word) / 2f64.powi(32)) as u32 - 1 + shift) % ROWS;
    (0..n).map(|i| pcg4d([seed, i, 0, 0])).map(|words| [row(words[0]), row(words[1])]).collect()
}

fn total(group: &mut CpuGroup) -> Counters {
    group.counters().unwrap().into_iter().sum()
}

/// Runs one step, with one bag for each sample.
fn step(group: &mut CpuGroup, samples: &[[u32; FIELDS]]) {
    let offsets: Vec<u32> = (0..=samples.len()).map(|bag| (bag * FIELDS) as u32).collect();
    let out = group.forward(Bags::new(samples.as_flattened(), &offsets), Mode::Train).unwrap();
    group.backward(&vec![0.01; out.len()]).unwrap();
}

/// Runs an epoch. Returns the counters before it, and how often each row was used.
fn epoch(group: &mut CpuGroup, samples: &[[u32; FIELDS]]) -> (Counters, Profile) {
    let before = total(group);
    let mut profile = Profile::exact(&[ROWS]);
    for batch in samples.chunks(BATCH) {
        profile.count_rows(batch.as_flattened()).unwrap();
        step(group, batch);
    }
    (before, profile)
}

#[test]
fn a_hot_batch_moves_no_row_over_the_bus() {
    let samples = samples(6000, 1, 0);
    let mut profile = Profile::exact(&[ROWS]);
    profile.count_rows(samples.as_flattened()).unwrap();
    let hottest = profile.hottest(400);
    let mut group = group(512);
    let left_out = group.pin(&hottest, WAYS).unwrap();
    let pinned = group.pinned().unwrap();
    assert_eq!(pinned.len() + left_out.len(), 400);

    let (mut all, mut in_hot) = (0, 0);
    for (hot, batch) in HotBatches::new(samples, BATCH, |sample| sample.iter().all(|row| pinned.contains(row))) {
        let before = total(&mut group);
        step(&mut group, &batch);
        all += batch.len();
        let moved = total(&mut group) - before;
        if hot {
            assert_eq!((moved.bus_bytes(), moved.unique_misses), (0, 0), "nothing crosses");
            assert_eq!(moved.hits, moved.accesses, "all of it hits");
            assert_eq!(moved.accesses as usize, FIELDS * batch.len());
            in_hot += batch.len();
        } else {
            // A normal sample has a row that must be read and written.
            assert!(moved.bytes_read > 0 && moved.bytes_read == moved.bytes_written, "{moved:?}");
            assert_eq!(moved.bytes_read, moved.unique_misses * group.layout().stride());
        }
    }
    assert_eq!(all, 6000);
    // If rows were drawn independently, a sample of two would be hot with the square of the hit rate.
    let rate = total(&mut group).hit_rate();
    let share = in_hot as f64 / all as f64;
    assert!((share - rate * rate).abs() < 0.03, "{share} {rate}");
}

/// Pins what an epoch ranked hottest in a cache of `rows` rows, and compares the counters of another epoch of the same lookups with the forecast.
fn repin(group: &mut CpuGroup, profile: &Profile, rows: u32, next: &[[u32; FIELDS]]) -> f64 {
    group.pin(&[], WAYS).unwrap();
    group.resize_cache(rows).unwrap();
    let (skew, sets) = (profile.skew().unwrap(), group.layout().sets);
    let pinned = Pinned::known(&skew, &profile.hottest(usize::MAX), sets, WAYS);
    assert_eq!(group.pin(&pinned.rows, WAYS).unwrap(), NONE, "each finds a way");
    let (before, _) = epoch(group, next);
    let counted = total(group) - before;
    let batch = (BATCH * FIELDS) as u64;
    let sizes = [(batch, counted.accesses / batch), (counted.accesses % batch, 1)];
    let forecast = Forecast::batches(&skew, &pinned, sizes);
    let off = |found: u64, wanted: f64| (found as f64 - wanted).abs() / wanted;
    assert!(off(counted.hits, forecast.hits.mean) < 1e-9, "{counted:?} {forecast:?}");
    assert!(off(counted.unique_misses, forecast.misses.mean) < 0.01, "{counted:?} {forecast:?}");
    assert!(off(counted.unique_misses, forecast.touched.mean) > 0.1, "another count is told apart");
    counted.hit_rate()
}

#[test]
fn pins_follow_what_a_profile_counts() {
    const EPOCH: u32 = 20_000;
    let mut group = group(64);
    let (old, new) = (samples(EPOCH, 1, 0), samples(EPOCH, 2, 1000));
    let (_, first) = epoch(&mut group, &old);
    let small = repin(&mut group, &first, 64, &old);
    let large = repin(&mut group, &first, 640, &old);
    assert!(large > small + 0.2, "a larger cache serves more: {small} {large}");
    // Other rows become hot: the pins of before serve few lookups, until they are chosen anew.
    let (before, drifted) = epoch(&mut group, &new);
    assert!((total(&mut group) - before).hit_rate() < 0.2);
    let again = repin(&mut group, &drifted, 640, &new);
    assert!((again - large).abs() < 0.02, "{again} {large}");
}
