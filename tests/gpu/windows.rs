//! A cache cut into windows, each with its own binding, gives the bits of a cache in one window.

use hotrow::internals::Pieces as _;
use hotrow::internals::context_with_texts;
use hotrow::{
    Caps, Context, ContextOptions, Error, Group, GroupConfig, Init, MemoryReport, Optimizer, Part, Policy, Precision,
    Shaders, Snapshot, adapter,
    internals::layout::{Field, WAYS, way_at},
    prelude::*,
    wgpu,
};

use hotrow_harness::{
    device::{again, options, skipped, with_gpu},
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
    let layout = hotrow::Layout::new(config, u64::MAX).unwrap();
    let slots = u64::from(layout.slots().div_ceil(windows));
    let config = config.clone().with_window_bytes(Some(slots * layout.slot_bytes()));
    assert_eq!(hotrow::Layout::new(&config, u64::MAX).unwrap().windows(), windows);
    config
}

/// The numbers of windows among 2, 3 and 5 that the device can bind.
fn bindable(caps: &Caps) -> Vec<u32> {
    let (can, cannot): (Vec<u32>, Vec<u32>) =
        [2, 3, 5].into_iter().partition(|&windows| windows <= caps.choose_windows());
    if !cannot.is_empty() {
        skipped(&format!("caches in {cannot:?} windows: {} binds {} storage buffers", caps.name, caps.storage_buffers));
    }
    can
}

/// All results of a run's calls, in order.
#[derive(Debug, PartialEq)]
struct Told {
    outputs: Vec<Vec<f32>>,
    snapshots: Vec<Snapshot>,
}

/// Runs every call that reads or writes slots: forward, backward, flush, read and write rows, snapshot and restore.
fn run(context: &Context, config: &GroupConfig) -> Told {
    let mut group = Group::new(context, config.clone()).unwrap();
    let mut told = Told { outputs: Vec::new(), snapshots: Vec::new() };
    let offsets: Vec<u32> = (0..=100).map(|bag| bag * 5).collect();
    let step = |group: &mut Group, told: &mut Told, step: u32| {
        // Some rows occur often; one row takes a fifth of the batch.
        let indices: Vec<u32> = (0..500u32)
            .map(|i| match i % 5 {
                0 => 11,
                1 => i * 7 % 200,
                _ => (i * i * 31 + step * 977) % ROWS,
            })
            .collect();
        let outputs = group.forward(&indices, &offsets, None).unwrap();
        group.backward(&outputs).unwrap();
        told.outputs.push(outputs);
    };
    for number in 0..4 {
        step(&mut group, &mut told, number);
    }
    let all: Vec<u32> = (0..ROWS).collect();
    told.outputs.push(group.read_rows(&all).unwrap());
    told.snapshots.push(group.snapshot().unwrap());
    // Read a range of slots from the first window to another.
    let cache = &told.snapshots[0].cache;
    let mut middle = vec![0; cache.len() / 2];
    group.read_part(Part::Cache, 101, &mut middle).unwrap();
    assert_eq!(middle, bytemuck::cast_slice::<f32, u32>(&cache[101..101 + middle.len()]));
    // Write resident rows and other rows.
    let rows: Vec<u32> = (0..ROWS).step_by(9).collect();
    let values: Vec<f32> = (0..rows.len() * config.dim as usize).map(|x| (x as f32 * 0.01).sin()).collect();
    group.write_rows(&rows, &values).unwrap();
    told.snapshots.push(group.snapshot().unwrap());
    group.flush().unwrap();
    step(&mut group, &mut told, 4);
    told.snapshots.push(group.snapshot().unwrap());
    // Restore the state into another group and continue there.
    let mut other = Group::new(context, config.clone()).unwrap();
    other.restore(&told.snapshots[2]).unwrap();
    assert_eq!(other.snapshot().unwrap(), told.snapshots[2]);
    step(&mut other, &mut told, 5);
    other.reset().unwrap();
    told.outputs.push(other.read_rows(&all).unwrap());
    told.snapshots.push(other.snapshot().unwrap());
    told
}

/// The number of windows, out of `windows`, that hold a row.
fn windows_in_use(snapshot: &Snapshot, slots: u32, windows: u32) -> usize {
    let each = slots.div_ceil(windows);
    let used =
        (0..slots).filter(|&slot| snapshot.ways[way_at(WAYS, slot, Field::Tag)] != hotrow::internals::layout::NONE);
    used.map(|slot| slot / each).collect::<std::collections::BTreeSet<_>>().len()
}

fn any_number_gives_the_same_bits(dim: u32) {
    with_gpu(|context| {
        let windows = bindable(context.caps());
        let optimizers = [Optimizer::sgd(0.05), Optimizer::adagrad(0.05), Optimizer::row_wise_adagrad(0.05)];
        let settings = || [Policy::Lru, Policy::Lfu].into_iter().cycle().zip(optimizers);
        let modes = [Shaders::Checked, Shaders::Trusted];
        for (shaders, (policy, optimizer)) in
            sample(6, modes.into_iter().flat_map(|mode| settings().map(move |one| (mode, one))))
        {
            let context = &again(&ContextOptions::default().shaders(shaders));
            let config = config(dim, policy, optimizer);
            let one = run(context, &config);
            for &windows in sample(2, &windows) {
                let cut = in_windows(&config, windows);
                let what = format!("{windows} windows, {policy:?}, {optimizer:?}, {shaders:?}");
                assert_eq!(windows_in_use(&one.snapshots[0], 320, windows), windows as usize, "{what}");
                assert!(run(context, &cut) == one, "{what}");
            }
            assert!(run(context, &config.with_seed(8)) != one, "the comparison can fail");
        }
    });
}

#[test]
fn any_number_gives_the_same_bits_in_wide_quads() {
    any_number_gives_the_same_bits(24);
}

#[test]
fn any_number_gives_the_same_bits_in_narrow_quads() {
    any_number_gives_the_same_bits(7);
}

/// The comparison above must notice a stage that reads the wrong window.
#[test]
fn a_wrong_window_is_noticed() {
    with_gpu(|context| {
        if bindable(context.caps()).is_empty() {
            return;
        }
        let config = in_windows(&config(24, Policy::Lru, Optimizer::sgd(0.05)), 2);
        let right = run(context, &config);
        let faults = [
            ("gather", "return cache1[(", "return cache1[1u + ("),
            ("exchange", "{ cache1[(", "{ cache1[1u + ("),
            ("update", "{ cache1[(", "{ cache1[1u + ("),
            ("assign", "{ cache1[(", "{ cache1[1u + ("),
            ("gather", "place >= 1u * params.window_slots", "place > 1u * params.window_slots"),
        ];
        for (stage, from, to) in sample(2, faults) {
            let spoiled = context_with_texts(context.device(), context.queue(), 65_535, move |kernel, bodies| {
                let text = hotrow::internals::shader::compose(kernel, bodies);
                if kernel.name != stage || bodies.cut.windows == 1 {
                    return text;
                }
                assert!(text.contains(from), "{stage}: {from}");
                text.replace(from, to)
            });
            assert!(run(&spoiled.unwrap(), &config) != right, "{stage}: {to}");
        }
    });
}

/// A cache of 154 MB: llvmpipe binds 128 MiB. A device whose binding would hold it all gets windows of the same size.
#[test]
fn a_cache_larger_than_a_binding() {
    with_gpu(|context| {
        if bindable(context.caps()).is_empty() {
            return;
        }
        let mut config = GroupConfig::new(&[400_000], 128);
        config.precision = Precision::Int2;
        config.optimizer = Optimizer::sgd(1.0);
        config.cache_rows = 300_000;
        config.init = Init::Constant(0.5);
        if context.caps().choose_shard_bytes() > 128 << 20 {
            config.set_window_bytes(Some(128 << 20));
        }
        let mut group = Group::new(context, config.clone()).unwrap();
        let layout = group.layout().clone();
        assert!(layout.window_slots == 262_144 && layout.windows() == 2, "{layout:?}");
        assert!(u64::from(layout.slots()) * layout.slot_bytes() > 150_000_000);
        assert_eq!(group.memory(), MemoryReport::plan(&config, &layout, hotrow::Calls::default()));

        // The gradients give each row its own values, which no format but the cache's FP32 represents.
        let rows: Vec<u32> = (0..400_000).step_by(20).collect();
        let offsets: Vec<u32> = (0..=rows.len() as u32).collect();
        let wanted: Vec<f32> =
            rows.iter().flat_map(|&row| (0..128).map(move |q| row as f32 + q as f32 / 128.0)).collect();
        let grads: Vec<f32> = wanted.iter().map(|value| 0.5 - value).collect();
        assert!(group.forward(&rows, &offsets, None).unwrap().iter().all(|&value| value == 0.5));
        group.backward(&grads).unwrap();
        assert!(group.read_rows(&rows).unwrap() == wanted);
        assert!(group.forward_frozen(&rows, &offsets, None).unwrap() == wanted);

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
    });
}

/// With WebGPU's default limits there is no storage buffer left for a second window.
#[test]
fn a_cache_that_cannot_be_bound_is_refused() {
    with_gpu(|_| {
        let adapter = &adapter::adapters()[0];
        let descriptor = wgpu::DeviceDescriptor { required_limits: wgpu::Limits::default(), ..Default::default() };
        let (device, queue) = pollster::block_on(adapter.request_device(&descriptor)).unwrap();
        let bare = Context::with_options(&device, &queue, &options()).unwrap();
        assert_eq!(bare.caps().choose_windows(), 1);
        let one = config(24, Policy::Lru, Optimizer::sgd(0.1));
        Group::new(&bare, one.clone()).unwrap().forward(&[1, 2], &[0, 2], None).unwrap();
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
        let error = Group::new(&bare, large).unwrap_err();
        assert!(
            matches!(error, Error::TooLarge { what: "cache", wanted: 268_435_456, limit: 134_217_728, .. }),
            "{error}"
        );
    });
}

#[test]
fn a_window_holds_a_slot() {
    let small = config(24, Policy::Lru, Optimizer::sgd(0.1)).with_window_bytes(Some(95));
    let error = hotrow::Layout::new(&small, u64::MAX).unwrap_err();
    assert!(matches!(&error, Error::Config { field: "window_bytes", .. }), "{error}");
    let enough = small.clone().with_window_bytes(Some(96));
    assert_eq!(hotrow::Layout::new(&enough, u64::MAX).unwrap().windows(), 320);
    // Without a cache no window is needed.
    hotrow::Layout::new(&small.with_cache_rows(0), u64::MAX).unwrap();
}
