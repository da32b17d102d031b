//! A cache cut into windows, each with its own binding. Lockstep runs and others cut their caches too.

use hotrow::internals::Pieces as _;
use hotrow::{
    Bags, Context, Error, Group, GroupConfig, Init, MemoryReport, Mode, Optimizer, Policy, Precision,
    internals::layout::{Field, WAYS, way_at},
    prelude::*,
    wgpu,
};

use hotrow_harness::{
    device::{options, own, skipped, spoiled},
    gpu_test,
    lockstep::{Codes, random_run},
    sample,
};

const ROWS: u32 = 3000;

fn config(dim: u32, policy: Policy, optimizer: Optimizer) -> GroupConfig {
    GroupConfig::new(&[ROWS], dim)
        .with_precision(Precision::Int8)
        .with_cache_rows(320)
        .with_policy(policy)
        .with_optimizer(optimizer)
        .with_init(Init::Uniform { low: -1.0, high: 1.0 })
        .with_seed(7)
}

/// The same configuration with its cache in `windows` windows. Ten sets do not divide evenly.
fn in_windows(config: &GroupConfig, windows: u32) -> GroupConfig {
    let layout = hotrow::internals::Layout::new(config, u64::MAX).unwrap();
    let slots = u64::from(layout.slots().div_ceil(windows));
    let config = config.clone().with_window_bytes(Some(slots * layout.slot_bytes()));
    assert_eq!(hotrow::internals::Layout::new(&config, u64::MAX).unwrap().windows(), windows);
    config
}

/// Runs in lockstep with the CPU, two in three of them in several windows, notice a stage that reads the wrong window.
#[gpu_test]
fn a_wrong_window_is_noticed(context: &Context) {
    if context.caps().choose_windows() < 2 {
        return skipped("caches in several windows: the device binds one");
    }
    let faults = [
        ("gather", "return cache1[(", "return cache1[1u + ("),
        ("exchange", "{ cache1[(", "{ cache1[1u + ("),
        ("update", "{ cache1[(", "{ cache1[1u + ("),
        ("assign", "{ cache1[(", "{ cache1[1u + ("),
        ("gather", "place >= 1u * params.window_slots", "place > 1u * params.window_slots"),
    ];
    for (stage, from, to) in sample(2, faults) {
        let spoiled = spoiled(context, &[stage], |cut| cut.windows > 1, (from, to));
        let noticed = (0..90).any(|seed| random_run(&spoiled, seed, &mut Codes::default()).is_err());
        assert!(noticed, "{stage}: {to}");
    }
}

/// A cache of 154 MB: llvmpipe binds 128 MiB. A device whose binding would hold it all gets windows of the same size.
#[gpu_test]
fn a_cache_larger_than_a_binding(context: &Context) {
    if context.caps().choose_windows() < 2 {
        return skipped("caches in several windows: the device binds one");
    }
    let config = GroupConfig::new(&[400_000], 128).with_precision(Precision::Int2);
    let config = config.with_optimizer(Optimizer::sgd(1.0)).with_cache_rows(300_000);
    let mut config = config.with_init(Init::Constant(0.5));
    if context.caps().choose_piece_bytes() > 128 << 20 {
        config.set_window_bytes(Some(128 << 20));
    }
    let mut group = Group::new(context, config.clone()).unwrap();
    let layout = group.layout().clone();
    assert!(layout.window_slots == 262_144 && layout.windows() == 2, "{layout:?}");
    assert!(u64::from(layout.slots()) * layout.slot_bytes() > 150_000_000);
    assert_eq!(group.memory(), MemoryReport::planned(&config, &layout, hotrow::Calls::default()));

    // The gradients give each row its own values, which no format but the cache's FP32 represents.
    let rows: Vec<u32> = (0..400_000).step_by(20).collect();
    let offsets: Vec<u32> = (0..=rows.len() as u32).collect();
    let wanted: Vec<f32> = rows.iter().flat_map(|&row| (0..128).map(move |q| row as f32 + q as f32 / 128.0)).collect();
    let grads: Vec<f32> = wanted.iter().map(|value| 0.5 - value).collect();
    assert!(group.forward(Bags::new(&rows, &offsets), Mode::Train).unwrap().iter().all(|&value| value == 0.5));
    group.backward(&grads).unwrap();
    assert!(group.read_rows(&rows).unwrap() == wanted);
    assert!(group.forward(Bags::new(&rows, &offsets), Mode::Frozen).unwrap() == wanted);

    let before = group.snapshot().unwrap();
    assert_eq!(before.cache.len() as u64 * 4, u64::from(layout.slots()) * layout.slot_bytes());
    let mut seen = [0; 2];
    for slot in 0..layout.slots() {
        let tag = before.ways[way_at(WAYS, slot, Field::Tag)];
        if tag != hotrow::internals::layout::NONE {
            seen[(slot / layout.window_slots) as usize] += 1;
            assert_eq!(before.cache[slot as usize * 128], tag as f32, "slot {slot}");
        }
    }
    assert!(seen[0] > 10_000 && seen[1] > 1_000, "{seen:?} rows in the two windows");

    // A restore writes the same values back.
    group.reset_discarding().unwrap();
    assert!(group.read_rows(&rows).unwrap().iter().all(|&value| value == 0.5));
    group.restore(&before).unwrap();
    assert!(group.read_rows(&rows).unwrap() == wanted);
}

/// With WebGPU's default limits there is no storage buffer left for a second window.
#[gpu_test]
fn a_cache_that_cannot_be_bound_is_refused(_: &Context) {
    let (device, queue) = own(wgpu::Features::empty(), Some(wgpu::Limits::default()));
    let bare = Context::with_options(&device, &queue, &options()).unwrap();
    assert_eq!(bare.caps().choose_windows(), 1);
    let one = config(24, Policy::Lru, Optimizer::sgd(0.1));
    Group::new(&bare, one.clone()).unwrap().forward(Bags::new(&[1, 2], &[0, 2]), Mode::Train).unwrap();
    let buffers = || device.generate_allocator_report().map(|report| report.allocations.len());
    device.poll(wgpu::PollType::wait_indefinitely()).unwrap();
    let before = buffers();
    for windows in [2, 5] {
        let error = Group::new(&bare, in_windows(&one, windows)).unwrap_err();
        let Error::TooLarge { what: "cache", wanted, limit, .. } = &error else { panic!("{error}") };
        assert_eq!((*wanted, *limit), (320 * 96, u64::from(320u32.div_ceil(windows)) * 96));
        assert!(error.to_string().contains("storage buffers"), "{error}");
    }
    assert_eq!(buffers(), before, "nothing is allocated for a cache that is refused");
    // The device's own binding limits a window, too: 256 MiB are wanted, and it binds 128 MiB.
    let large = GroupConfig::new(&[1 << 20], 64).with_cache_rows(1 << 20);
    refuses!(Group::new(&bare, large), Error::TooLarge { what: "cache", wanted: 268_435_456, limit: 134_217_728, .. });
}

#[test]
fn a_window_holds_a_slot() {
    let small = config(24, Policy::Lru, Optimizer::sgd(0.1)).with_window_bytes(Some(95));
    refuses!(hotrow::internals::Layout::new(&small, u64::MAX), Error::Config { field: "window_bytes", .. });
    let enough = small.clone().with_window_bytes(Some(96));
    assert_eq!(hotrow::internals::Layout::new(&enough, u64::MAX).unwrap().windows(), 320);
    // Without a cache no window is needed.
    hotrow::internals::Layout::new(&small.with_cache_rows(0), u64::MAX).unwrap();
}
