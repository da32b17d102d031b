//! A prefetched batch gives the same outputs, tags and tables, bit for bit, as a batch that comes after the backward (SPEC 3, Prefetch).
//! The configurations are random, and the next batch evicts, admits and misses rows of the last batch.

use hotrow::{Bags, Context, CpuGroup, Error, Group, GroupConfig, Init, Mode, Placement, Policy, prelude::*};
use hotrow_harness::{
    device::{share, with_gpu},
    gpu_test,
    lockstep::Batch,
    prefetch::{self, REFUSED, When, busy_config, play, random_plans},
    seed_for, seeds,
};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;

use crate::encoded::Encoded;

fn same(name: &str, make: &dyn Fn(&GroupConfig) -> Box<dyn Embedding>, runs: u64) {
    for seed in share(seeds(name, runs)) {
        let mut source = Pcg64::seed_from_u64(seed);
        let config = busy_config(&mut source);
        let plans = random_plans(&config, &mut source, 10);
        let wanted = play(&mut *make(&config), &plans, false);
        let found = play(&mut *make(&config), &plans, true);
        assert_eq!(found, wanted, "seed {seed}, {config:?}");
    }
}

#[gpu_test]
fn on_the_gpu(context: &Context) {
    same("prefetch on a device", &|config| Box::new(Group::new(context, config.clone()).unwrap()), 15);
}

/// A staged table against a table on the device, with and without overlap. Rows are evicted or bypassed and wanted again one step later,
/// before the host has received them.
#[gpu_test]
fn staged(context: &Context) {
    let (mut forwarded, mut out) = (0, 0);
    // The first four are fixed, and evict and forward as much as is wanted below.
    for seed in (0..4).chain(share(seeds("prefetch of staged tables", 20))) {
        let mut source = Pcg64::seed_from_u64(seed);
        let config = busy_config(&mut source);
        let plans = random_plans(&config, &mut source, 10);
        let wanted = play(&mut Group::new(context, config.clone()).unwrap(), &plans, false);
        for overlap in [false, true] {
            let config = config.clone().with_placement(Placement::Staged);
            let mut group = Group::new(context, config.clone()).unwrap();
            let found = play(&mut group, &plans, overlap);
            assert_eq!(found, wanted, "seed {seed}, overlap {overlap}, {config:?}");
            if overlap && seed % 2 == 0 {
                let mut encoded = Encoded::new(context, &config);
                let found = play(&mut encoded, &plans, overlap);
                assert_eq!(found, wanted, "seed {seed}, encoded, {config:?}");
            }
            let traffic = group.traffic().unwrap();
            assert!(overlap || traffic.forwarded == 0);
            forwarded += traffic.forwarded;
            out += traffic.records_out;
        }
    }
    assert!(forwarded > 10 && out > 1000, "{forwarded} {out}");
}

#[test]
fn on_the_cpu() {
    same("prefetch", &|config| Box::new(CpuGroup::new(config.clone()).unwrap()), 150);
}

/// The comparison must notice a prefetched batch that is not the next one, and a missing backward.
#[test]
fn a_wrong_overlap_is_noticed() {
    // Both changes pass only if two batches of 30 indices below 60 are equal, or if no later one has a row of a third.
    let mut source = Pcg64::seed_from_u64(seed_for("a wrong overlap"));
    let config = GroupConfig::new(&[400], 8).with_init(Init::Uniform { low: -1.0, high: 1.0 });
    let config = config.with_cache_rows(32).with_policy(Policy::Lru);
    let mut plans = random_plans(&config, &mut source, 6);
    let make = || CpuGroup::new(config.clone()).unwrap();
    for plan in &mut plans {
        (plan.backward, plan.when, plan.flush, plan.pin) = (true, When::BeforeBackward, false, None);
        plan.between = 9;
        plan.batch = Batch {
            indices: (0..30).map(|_| source.random_range(0..60)).collect(),
            offsets: vec![0, 30],
            weights: None,
        };
    }
    let wanted = play(&mut make(), &plans, false);
    assert_eq!(play(&mut make(), &plans, true), wanted);
    plans[3].backward = false;
    assert_ne!(play(&mut make(), &plans, true), wanted, "a backward is missing");
    plans[3].backward = true;
    plans.swap(2, 3);
    assert_ne!(play(&mut make(), &plans, true), wanted, "two batches are swapped");
}

#[allow(clippy::needless_pass_by_value, reason = "the argument is the result of a call")]
fn refused<T: std::fmt::Debug>(found: Result<T, Error>) {
    assert!(matches!(found, Err(Error::Order { .. })), "{found:?}");
}

/// Calls between a prefetch and its forward are refused, and nothing is lost.
fn misuse(group: &mut dyn Embedding) {
    refused(group.forward_prefetched());
    refused(group.backward(&[]));
    let outputs = group.forward(Bags::new(&[1, 2], &[0, 2]), Mode::Train).unwrap();
    let next = Batch { indices: vec![2, 3], offsets: vec![0, 2], weights: None };
    let now = group.snapshot().unwrap();
    group.prefetch(Bags::new(&next.indices, &next.offsets)).unwrap();
    for call in 0..REFUSED {
        prefetch::refused(group, call, &next, &now).unwrap();
    }
    group.backward(&outputs).unwrap();
    refused(group.backward(&outputs));
    refused(group.flush());
    group.forward_prefetched().unwrap();
    refused(group.forward_prefetched());
    group.backward(&outputs).unwrap();
    // A bad shape is an error at once, a bad index an error of its forward. Both leave the group as it was.
    refuses!(group.prefetch(Bags::new(&[1], &[0, 2])), Error::BadOffsets { .. });
    let before = group.snapshot().unwrap();
    group.prefetch(Bags::new(&[1, 50], &[0, 2])).unwrap();
    let Err(Error::IndexOutOfRange { position: 1, value: 50, .. }) = group.forward_prefetched() else {
        panic!("index 50 of 50 rows was not refused");
    };
    refused(group.backward(&outputs));
    let after = group.snapshot().unwrap();
    assert_eq!((after.t, after.ways, after.cache), (before.t, before.ways, before.cache));
}

#[test]
fn misuse_is_refused() {
    let config = GroupConfig::new(&[50], 4).with_cache_rows(32);
    misuse(&mut CpuGroup::new(config.clone()).unwrap());
    with_gpu(|context| misuse(&mut Group::new(context, config.clone()).unwrap()));
}

/// The counter separates waiting from the host's own work. A lock stops the host from gathering for as long as the test wants.
#[gpu_test]
fn waiting_is_counted_only_where_it_happens(context: &Context) {
    let config = GroupConfig::new(&[1000], 8).with_placement(Placement::Staged).with_forward_only(true);
    let mut group = Group::new(context, config).unwrap();
    let store = group.store().unwrap().clone();
    let milliseconds = |group: &Group| {
        let traffic = group.traffic().unwrap();
        [traffic.host_nanoseconds, traffic.waited_nanoseconds].map(|nanoseconds| nanoseconds / 1_000_000)
    };
    group.forward(Bags::new(&[1, 2, 3], &[0, 3]), Mode::Train).unwrap();
    let first = group.traffic().unwrap();
    assert!(first.host_nanoseconds > 0);
    assert_eq!(first.host_nanoseconds, first.waited_nanoseconds, "nobody prefetched");

    // The test cannot see whether the thread has reached the lock. On a busy machine it tries again with longer pauses.
    for (hidden, mut time) in [(true, 100), (false, 100)] {
        let [host, waited] = loop {
            let pause = || std::thread::sleep(std::time::Duration::from_millis(time));
            let before = milliseconds(&group);
            std::thread::scope(|scope| {
                let working = &mut group;
                let waiting = store.with_mut(|_| {
                    working.prefetch(Bags::new(&[4, 5, 6], &[0, 3])).unwrap();
                    pause(); // time for the thread to reach the lock
                    if hidden {
                        return Err(working);
                    }
                    let waiting = scope.spawn(move || working.forward_prefetched());
                    pause();
                    Ok(waiting)
                });
                match waiting {
                    Ok(forward) => forward.join().unwrap().unwrap(),
                    Err(group) => {
                        pause();
                        group.forward_prefetched().unwrap()
                    }
                };
            });
            let after = milliseconds(&group);
            let found = [after[0] - before[0], after[1] - before[1]];
            let told = found[0] >= time / 2 && (found[1] < found[0] / 8) == hidden;
            if told || time > 3000 {
                break found;
            }
            time *= 2;
        };
        assert!(host >= time / 2, "{host} of {time} ms");
        assert_eq!(waited < host / 8, hidden, "{waited} of {host} ms");
    }
}
