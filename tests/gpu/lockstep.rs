//! GPU against CPU, step by step, over random configurations: `tests/harness/src/lockstep.rs`.

use hotrow::{
    Bags, Context, CpuGroup, Group, GroupConfig, Init, Mode, Policy,
    internals::{LookupBody, Pieces as _, RankBody},
    prelude::*,
    state::Snapshot,
};
use hotrow_harness::{
    device::{again, options, with_gpu},
    gpu_test,
    lanes::runs,
    lockstep::{Batch, Codes, Pair, floats, random_run, snapshots},
    sample_seeds, seed_for, seeds,
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
/// digits. Steps of different lengths share scratch. Some sets have more candidates than a workgroup orders at once, and the last table has
/// seven pieces, more than a software device binds, and more swaps than a workgroup lists at once.
#[gpu_test]
fn sorts_of_several_blocks(context: &Context) {
    // The last two: numbers of floats in a row, and of rows that half of the accesses are to.
    for (policy, rows, cache_rows, dim, often) in [
        (Policy::Lru, 5000, 640, 4, 9),
        (Policy::Lfu, 5000, 64, 4, 9),
        (Policy::Window, 300, 640, 260, 1),
        (Policy::Window, 5000, 64, 4, 9),
        (Policy::Lru, 70_000, 96, 4, 9),
    ] {
        let config = GroupConfig::new(&[rows], dim).with_cache_rows(cache_rows).with_policy(policy);
        let config = config.with_piece_bytes(Some(120_000));
        let mut gpu = Group::new(context, config.clone()).unwrap();
        let mut cpu = CpuGroup::new(config).unwrap();
        let mut pair = Pair { gpu: &mut gpu, cpu: &mut cpu, size: 64.0, codes: Codes::default() };
        let mut source = rng(u64::from(rows));
        for n in [9300u32, 4000, 1500, 9000] {
            let indices = (0..n).map(|i| source.random_range(0..[rows, often][i as usize % 2])).collect();
            let batch = Batch { indices, offsets: (0..=300).map(|bag| bag * n / 300).collect(), weights: None };
            let step = pair.step(&batch, |i| (i % 7) as f32 / 4.0 - 0.5);
            step.unwrap_or_else(|difference| {
                panic!("{policy:?}, {rows} rows, {cache_rows} cached, {n} indices: {difference}")
            });
        }
    }
}

/// Rows that leave the ways for recent rows take the places of others that were used less, in one set. In the fourth step row 30, used 3 times, takes the
/// place of row 29, used once, and row 31, used 4 times, that of row 30. The other steps are random: few rows, some of them often.
#[gpu_test]
fn recent_rows_stay_where_they_were_used_more(context: &Context) {
    let often = (0..29).flat_map(|row| [row; 6]).chain([29]).collect();
    let first = [often, vec![30, 31], vec![30, 30, 31, 31, 31], vec![32, 33]];
    let mut source = rng(seed_for("recent rows"));
    let mut few = || (0..30).map(|_| (200.0 * source.random::<f32>().powi(3)) as u32).collect();
    let random: Vec<Vec<u32>> = (0..60).map(|_| few()).collect();
    for (window_ways, steps) in [(2, &first[..]), (8, &random)] {
        let config = GroupConfig::new(&[200], 4).with_cache_rows(32).with_policy(Policy::Window);
        let config = config.with_window_ways(window_ways);
        let mut gpu = Group::new(context, config.clone()).unwrap();
        let mut cpu = CpuGroup::new(config).unwrap();
        let mut pair = Pair { gpu: &mut gpu, cpu: &mut cpu, size: 64.0, codes: Codes::default() };
        for (step, indices) in steps.iter().enumerate() {
            let batch = Batch { indices: indices.clone(), offsets: vec![0, indices.len() as u32], weights: None };
            pair.step(&batch, |i| i as f32 / 4.0).unwrap_or_else(|difference| panic!("step {step}: {difference}"));
        }
    }
}

/// Runs of the lane executor: one bag of many indices, more tables than a workgroup counts by itself, values that are not finite.
#[gpu_test]
fn many_tables_and_few_workgroups(context: &Context) {
    let few = again(&options().rank(RankBody::Portable).max_groups(3));
    for seed in seeds("blocks", 4) {
        runs::one_bag(context, seed);
        [context, &few].into_iter().for_each(|context| runs::blocks(context, seed));
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
