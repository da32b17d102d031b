//! GPU against CPU, step by step, over random configurations: `tests/harness/src/lockstep.rs`.

use hotrow::{
    Bags, Context, CpuGroup, Group, GroupConfig, Init, Mode, Policy,
    internals::{LookupBody, RankBody},
    prelude::*,
    state::Snapshot,
};
use hotrow_harness::{
    device::{again, options, with_gpu},
    gpu_test,
    lockstep::{Batch, Codes, Pair, floats, random_run, snapshots},
    sample_seeds,
};
use rand::RngExt as _;

use crate::dedup::rng;

#[test]
pub(crate) fn random_configurations() {
    with_gpu(|context| {
        // HOTROW_TEST_RUNS sets the number of random runs; with 0 only those that are held run.
        let runs = std::env::var("HOTROW_TEST_RUNS").ok();
        let runs = runs.map_or(60, |text| text.parse().expect("HOTROW_TEST_RUNS: wanted a number of runs"));
        let mut codes = Codes::default();
        // Each body that looks up rows and that the device runs; and three workgroups in x, so that small inputs fill a second dimension.
        let has_32 = context.caps().subgroup == Some((32, 32));
        let bodies = LookupBody::ALL.into_iter().filter(|&body| has_32 || body != LookupBody::Lanes32);
        let mut contexts: Vec<_> = bodies.map(|body| again(&options().lookup(body))).collect();
        contexts.extend([context.clone(), again(&options().rank(RankBody::Portable).max_groups(3))]);
        for (context, seed) in contexts.iter().cycle().zip(sample_seeds(16, "lockstep", runs)) {
            random_run(context, seed, &mut codes).unwrap_or_else(|difference| panic!("{difference}"));
        }
        eprintln!("{} of {} written elements differ by one code", codes.different, codes.written);
        assert!(codes.few(), "more than 1 in 10^4 codes differ");
    });
}

/// Sorts of several blocks, whose first digits are counted where keys are written: backwards by row, and by place where places have fewer
/// digits. Steps of different lengths share scratch.
#[gpu_test]
fn sorts_of_several_blocks(context: &Context) {
    for (policy, rows) in [(Policy::Lru, 5000), (Policy::Lfu, 5000), (Policy::Window, 300), (Policy::Lru, 70_000)] {
        let config = GroupConfig::new(&[rows], 4).with_cache_rows(640).with_policy(policy);
        let mut gpu = Group::new(context, config.clone()).unwrap();
        let mut cpu = CpuGroup::new(config).unwrap();
        let mut pair = Pair { gpu: &mut gpu, cpu: &mut cpu, size: 64.0, codes: Codes::default() };
        let mut source = rng(u64::from(rows));
        for n in [9300u32, 4000, 1500, 9000] {
            let indices = (0..n).map(|i| source.random_range(0..[rows, 9][i as usize % 2])).collect();
            let batch = Batch { indices, offsets: (0..=300).map(|bag| bag * n / 300).collect(), weights: None };
            let step = pair.step(&batch, |i| (i % 7) as f32 / 4.0 - 0.5);
            step.unwrap_or_else(|difference| panic!("{policy:?}, {rows} rows, {n} indices: {difference}"));
        }
    }
}

/// The comparison must notice each single change to a group's state.
#[test]
fn differences_are_noticed() {
    let config = GroupConfig::new(&[100], 4).with_cache_rows(32).with_policy(Policy::Lfu);
    let config = config.with_init(Init::Uniform { low: -1.0, high: 1.0 });
    let mut group = CpuGroup::new(config).unwrap();
    let batch: Vec<u32> = (0..60).map(|i| i % 40).collect();
    let outputs = group.forward(Bags::new(&batch, &[0, 30, 60]), Mode::Train).unwrap();
    group.backward(&vec![1.0; outputs.len()]).unwrap();
    let layout = group.layout().clone();
    let right = group.snapshot().unwrap();
    let same = |wrong: &Snapshot| snapshots(&layout, wrong, &right, 64.0, &mut Codes::default());
    assert_eq!(same(&right), Ok(()));
    type Spoil = fn(&mut Snapshot);
    let spoils: [(&str, Spoil); 10] = [
        ("t", |s| s.t += 1),
        ("tag", |s| s.ways[0] ^= 1),
        ("stamp", |s| s.ways[32] += 1),
        ("freq of a slot", |s| s.ways[64] += 1),
        ("dirty", |s| s.ways[96] ^= 1),
        ("pinned", |s| s.ways[96] ^= 2),
        ("freq", |s| s.freqs[7] += 1),
        ("counter", |s| s.counters[0].evictions += 1),
        ("cache", |s| s.cache[5] += 1e-2),
        ("code", |s| s.records[2] ^= 0b10),
    ];
    for (what, spoil) in spoils {
        let mut wrong = right.clone();
        spoil(&mut wrong);
        assert!(same(&wrong).is_err(), "{what}");
    }
    let mut wrong = outputs.clone();
    wrong[3] += 1e-2;
    assert!(floats("outputs", &wrong, &outputs, 64.0).is_err());
    assert!(floats("outputs", &outputs[1..], &outputs, 64.0).is_err());
    // A code that differs by one is allowed, but counted.
    let mut codes = Codes::default();
    let mut wrong = right.clone();
    wrong.records[2] ^= 1;
    assert_eq!(snapshots(&layout, &wrong, &right, 64.0, &mut codes), Ok(()));
    assert_eq!(codes.different, 1);
}
