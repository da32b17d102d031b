//! The memory plan against the group's own buffers, and the list of both against the driver's.

use hotrow::{
    Bags, Batch, Calls, Context, Group, GroupConfig, MemoryReport, Mode, Optimizer, Placement, Policy, adapter,
    prelude::*, wgpu,
};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;

use crate::caller::{self, storage};
use hotrow_harness::{device::skipped, gpu_test, lockstep, seed_for};

fn random_config(random: &mut Pcg64, context: &Context) -> GroupConfig {
    // Any rows are pinned.
    let config = lockstep::random_config(random).with_padding(Vec::new());
    let mapped = context.caps().mappable && config.placement == Placement::Device && random.random_bool(0.4);
    if mapped { config.with_placement(Placement::Mapped) } else { config }
}

/// A batch with as many bags as features. All indices are in the first bag.
fn batch(config: &GroupConfig, indices: u32, random: &mut Pcg64) -> (Vec<u32>, Vec<u32>) {
    let tables = config.feature_tables();
    let rows = config.tables[tables[0] as usize];
    let mut offsets = vec![indices; tables.len() + 1];
    offsets[0] = 0;
    ((0..indices).map(|_| random.random_range(0..rows)).collect(), offsets)
}

/// The report without the ring of a staged table, and the ring's bytes. The ring grows with the missing rows of the past steps.
fn without_ring(report: &MemoryReport) -> (MemoryReport, u64) {
    let mut rest = report.clone();
    rest.allocations.retain(|(name, _)| *name != "ring");
    let ring = report.allocations.iter().filter(|(name, _)| *name == "ring").map(|(_, bytes)| bytes).sum();
    rest.staging -= ring;
    rest.host -= ring;
    (rest, ring)
}

/// The first figure of the plan that differs from the group's report.
fn wrong(plan: &MemoryReport, group: &MemoryReport) -> Option<String> {
    let ((plan, most), (group, ring)) = (without_ring(plan), without_ring(group));
    if ring > most {
        return Some(format!("a ring of {ring}, planned {most}"));
    }
    let (plan, group) = (&plan, &group);
    let sum = |report: &MemoryReport| report.allocations.iter().map(|(_, bytes)| bytes).sum::<u64>();
    if sum(plan) != plan.total() || sum(group) != group.total() {
        return Some(format!("buffers {} {}, purposes {} {}", sum(plan), sum(group), plan.total(), group.total()));
    }
    let differ = plan.lines().into_iter().zip(group.lines()).find(|(plan, group)| plan != group);
    differ
        .map(|(plan, group)| format!("{plan:?} {group:?}"))
        .or_else(|| (plan != group).then(|| format!("{plan:?}\n{group:?}")))
}

#[gpu_test]
fn a_plan_is_right_to_the_byte(context: &Context) {
    let mut random = Pcg64::seed_from_u64(seed_for("memory plans"));
    for case in 0..24 {
        let config = random_config(&mut random, context);
        let mut group = Group::new(context, config.clone()).unwrap();
        let layout = group.layout().clone();
        let mut calls = Calls::default();
        let plan = |calls: Calls| MemoryReport::planned(&config, &layout, calls);
        let check = |group: &Group, calls| {
            assert_eq!(wrong(&plan(calls), &group.memory()), None, "case {case}, {calls:?}: {config:?}");
        };
        check(&group, calls);
        for most in [1u32, 40, 40, 40, 40] {
            // Some batches are smaller than the batch before and allocate nothing. The first is empty.
            let indices = random.random_range(0..most).pow(2);
            let (rows, offsets) = batch(&config, indices, &mut random);
            match random.random_range(0..4) {
                0 => {
                    let outputs = group.forward(Bags::new(&rows, &offsets), Mode::Train).unwrap();
                    group.backward(&outputs).unwrap();
                    calls.train = calls.train.max(Some(indices));
                }
                1 => {
                    group.forward(Bags::new(&rows, &offsets), Mode::Frozen).unwrap();
                    calls.frozen = calls.frozen.max(Some(indices));
                }
                2 if layout.sets > 0 => {
                    group.pin(&rows, random.random_range(1..=32)).unwrap();
                    calls.flush = true;
                }
                _ => {
                    group.flush().unwrap();
                    calls.flush = true;
                }
            }
            check(&group, calls);
        }
        // A plan for one batch size covers a step, a frozen step and a flush.
        let (rows, offsets) = batch(&config, 1600, &mut random);
        group.forward(Bags::new(&rows, &offsets), Mode::Train).unwrap();
        group.forward(Bags::new(&rows, &offsets), Mode::Frozen).unwrap();
        group.flush().unwrap();
        assert_eq!(wrong(&MemoryReport::planned(&config, &layout, 1600), &group.memory()), None, "{config:?}");
        // The plan of a larger batch must differ. Which figure differs first depends on the placement.
        let other = MemoryReport::planned(&config, &layout, 3200);
        assert!(wrong(&other, &group.memory()).is_some(), "{config:?}");
        let mut changed = group.memory();
        changed.allocations.last_mut().unwrap().1 += 16;
        assert!(wrong(&changed, &group.memory()).is_some_and(|what| what.starts_with("buffers")), "a wrong size");
        changed = group.memory();
        changed.payload += 4;
        assert!(wrong(&changed, &group.memory()).is_some_and(|what| what.starts_with("buffers")));
        changed.scales -= changed.scales.min(4);
        changed.padding = changed.padding.wrapping_sub(4).wrapping_add(plan(calls).scales - changed.scales);
        assert!(wrong(&changed, &group.memory()).is_some_and(|what| what.contains("payload")));
    }
}

/// The list has every buffer: the driver knows of no other. Other tests allocate on the shared device, so this test opens a device of its own.
#[gpu_test]
fn the_driver_knows_the_same_buffers(_: &Context) {
    let context = adapter::open_best().unwrap();
    let config = GroupConfig::new(&[3000, 500], 9).with_policy(Policy::Lfu).with_cache_rows(320);
    let mut group = Group::new(&context, config.with_optimizer(Optimizer::adagrad(0.1))).unwrap();
    let buffer = |words: &[u32]| storage(&context, words);
    let (indices, offsets, outputs) = (buffer(&[7; 400]), buffer(&[0, 300, 400]), buffer(&[0; 18]));
    let batch = Batch { indices: Some(indices.slice(..)), offsets: offsets.slice(..), weights: None };
    let mut encoder = caller::encoder(&context);
    group.encode_forward(&mut encoder, &batch, outputs.slice(..), Mode::Train).unwrap();
    group.encode_backward(&mut encoder, outputs.slice(..)).unwrap();
    group.encode_forward(&mut encoder, &batch, outputs.slice(..), Mode::Frozen).unwrap();
    group.encode_flush(&mut encoder).unwrap();
    context.queue().submit([encoder.finish()]);
    context.device().poll(wgpu::PollType::wait_indefinitely()).unwrap();
    let Some(driver) = context.device().generate_allocator_report() else {
        return skipped("memory against the driver: this backend reports no allocations");
    };
    // A context keeps uniforms of its own.
    let ours = driver.allocations.iter().filter_map(|buffer| buffer.name.strip_prefix("hotrow."));
    let mut ours: Vec<_> = ours.filter(|name| *name != "uniform").collect();
    ours.sort_unstable();
    let listed = group.memory().allocations;
    let listed: Vec<_> = listed.iter().map(|(name, _)| *name).filter(|name| *name != "uniform").collect();
    assert_eq!(ours, listed);
}

#[gpu_test]
fn steps_under_way_take_a_report_each(context: &Context) {
    let config = GroupConfig::new(&[100], 4).with_cache_rows(32);
    let mut group = Group::new(context, config.clone()).unwrap();
    let buffer = |words: &[u32]| storage(context, words);
    let (indices, offsets, outputs) = (buffer(&[3; 8]), buffer(&[0, 8]), buffer(&[0; 4]));
    let batch = Batch { indices: Some(indices.slice(..)), offsets: offsets.slice(..), weights: None };
    let mut encoder = caller::encoder(context);
    for _ in 0..3 {
        group.encode_forward(&mut encoder, &batch, outputs.slice(..), Mode::Train).unwrap();
        group.discard_pending();
    }
    context.queue().submit([encoder.finish()]);
    let calls = Calls::default().with_train(Some(8)).with_in_flight(3);
    let plan = |calls| MemoryReport::planned(&config, group.layout(), calls);
    assert_eq!(wrong(&plan(calls), &group.memory()), None);
    assert!(wrong(&plan(calls.with_in_flight(2)), &group.memory()).is_some(), "the comparison can fail");
}
