//! Whole runs that meet every kernel, by seed, against the CPU: inputs for the detectors, and for the mutants.

use std::sync::Arc;

use hotrow::{
    Context, ContextOptions, CpuGroup, CpuScaler, FloatBuffer, GradSlice, Group, GroupConfig, Lookup, LossScale,
    Optimizer, Placement, Policy, Scaler, SharedArray, SharedGroup,
    internals::AddBody,
    robe::{Backward, Config as RobeConfig, RobeSnapshot},
};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;
use wgpu::util::DeviceExt as _;
use wgsl_lanes::{Config, World, open};

use crate::{
    arrays::{exact_sums_are_the_sorted_ones, steps_are_the_cpus, steps_by_given_gradients},
    lockstep::{Batch, Codes, Pair, random_run, random_since},
    prefetch::{busy_config, play, random_plans},
    shared::{
        Bags, WAYS, any_order, bags, close, config, exact, forward, moved_within, outputs, packed, random_grads,
        weights,
    },
};

/// A context on a device of the executor.
pub fn context(device: &Config) -> (Context, Arc<World>) {
    let (wgpu_device, queue, world) = open(device);
    let context = Context::with_options(&wgpu_device, &queue, &options());
    (context.unwrap_or_else(|error| panic!("{device:?}: {error}")), world)
}

fn options() -> ContextOptions {
    ContextOptions::default().add(AddBody::Exchange).shared_pipelines(true)
}

/// Steps of a group of a random configuration, each from the device's state.
pub fn group(context: &Context, seed: u64) {
    let mut codes = Codes::default();
    random_run(context, seed, &mut codes).unwrap_or_else(|error| panic!("{error}"));
}

/// Steps with one bag, or with few of many indices: the search for an index's bag ends at once, or takes several rounds. Then the same with bad indices.
/// Half of the accesses are to three rows, which several workgroups count at once. They are too many for a sort in one dispatch.
pub fn one_bag(context: &Context, seed: u64) {
    let fail = |error: hotrow::Error| -> ! { panic!("one bag, seed {seed}: {error}") };
    let policy = [Policy::Lfu, Policy::Window][seed as usize % 2];
    let config = GroupConfig::new(&[1000], 4).with_cache_rows(64).with_policy(policy);
    let mut gpu = Group::new(context, config.clone()).unwrap_or_else(|error| fail(error));
    let mut cpu = CpuGroup::new(config).unwrap_or_else(|error| fail(error));
    let mut pair = Pair { gpu: &mut gpu, cpu: &mut cpu, size: 64.0, codes: Codes::default() };
    let mut source = Pcg64::seed_from_u64(seed);
    for bags in [1, 2, 700, 3, 500, 800] {
        let indices: Vec<u32> = (0..1100).map(|i| source.random_range(0..[1000, 3][i % 2])).collect();
        let offsets = (0..=bags).map(|bag| bag * 1100 / bags).collect();
        let mut batch = Batch { indices, offsets, weights: None };
        let mut step = |batch: &Batch| {
            pair.step(batch, |i| (i % 7) as f32 / 4.0 - 0.5)
                .unwrap_or_else(|error| panic!("one bag, seed {seed}: {error}"));
        };
        step(&batch);
        // Refused, for the first of several bad indices.
        batch.indices[source.random_range(0..450)..][..450].fill(1000);
        step(&batch);
    }
}

/// The same device with at most 4 workgroups in a dispatch, so that they loop over blocks of rows and keys.
fn few_groups(context: &Context) -> Context {
    Context::with_options(context.device(), context.queue(), &options().max_groups(1))
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Steps with more missing rows than the workgroups take at once, and of rows that several subgroups share: two means in turn, gradients and
/// written values that are not finite. 70 tables are more than a workgroup counts by itself.
pub fn blocks(context: &Context, seed: u64) {
    let mut source = Pcg64::seed_from_u64(seed);
    for (dim, accesses, shares) in [(2, 2500, 0), ([65, 128, 130, 260][seed as usize % 4], 150, 0), (2, 150, 12)] {
        let mut config = GroupConfig::new(&[60; 70], dim).with_cache_rows(512).with_precision(hotrow::Precision::Fp16);
        config.policy = [Policy::Lru, Policy::Lfu, Policy::Window][source.random_range(0..3)];
        if dim > 2 && seed % 2 == 1 {
            config.cache_rows = 0; // exchange only unpacks
        }
        if shares > 0 {
            (config.policy, config.cache_shares) = (Policy::Window, vec![0.05; shares]);
        }
        config.optimizer = [Optimizer::row_wise_adagrad(0.1), Optimizer::row_wise_adam(0.1)][source.random_range(0..2)];
        config.optimizer.clip_norm = Some(0.5);
        step_and_write(context, &config, accesses, &mut source)
            .unwrap_or_else(|error| panic!("blocks, seed {seed}, {config:?}: {error}"));
    }
}

fn step_and_write(context: &Context, config: &GroupConfig, n: u32, source: &mut Pcg64) -> Result<(), String> {
    let text = |error: hotrow::Error| error.to_string();
    let mut gpu = Group::new(context, config.clone()).map_err(text)?;
    let mut cpu = CpuGroup::new(config.clone()).map_err(text)?;
    let mut pair = Pair { gpu: &mut gpu, cpu: &mut cpu, size: 64.0, codes: Codes::default() };
    let since = random_since(config, source);
    pair.both("write_part", |group| group.write_part(hotrow::state::Part::Since, 0, &since))?;
    let (tables, rows) = (config.tables.len() as u32, config.tables[0]);
    let indices: Vec<u32> = (0..n).map(|_| source.random_range(0..rows)).collect();
    let offsets = (0..=tables).map(|bag| bag * n / tables).collect();
    let bad = source.random_range(0..(tables * config.dim) as usize);
    let grad = |i: usize| if i == bad { f32::NAN } else { (i % 17) as f32 / 8.0 - 1.0 };
    pair.step(&Batch { indices, offsets, weights: None }, grad)?;
    let rows: Vec<u32> = (0..20).map(|_| source.random_range(0..tables * rows)).collect();
    let mut values: Vec<f32> = (0..20 * config.dim).map(|i| i as f32 / 100.0).collect();
    for _ in 0..5 {
        let at = source.random_range(0..values.len());
        values[at] = f32::INFINITY;
    }
    pair.both("write_rows", |group| group.write_rows(&rows, &values))?;
    pair.compare("after write_rows")
}

/// A staged table whose next batch is fetched ahead, so that rows are forwarded from transfer to transfer, against one on the device.
pub fn staged(context: &Context, seed: u64) {
    let mut source = Pcg64::seed_from_u64(seed);
    let config = busy_config(&mut source);
    let plans = random_plans(&config, &mut source, 4);
    let run = |config: &GroupConfig, overlap| {
        let mut group = Group::new(context, config.clone()).unwrap_or_else(|error| panic!("{config:?}: {error}"));
        play(&mut group, &plans, overlap)
    };
    let wanted = run(&config, false);
    let found = run(&config.clone().with_placement(Placement::Staged), true);
    assert_eq!(found, wanted, "staged, seed {seed}, {config:?}");
}

fn snapshot(group: &mut dyn SharedArray) -> RobeSnapshot {
    group.snapshot().unwrap_or_else(|error| panic!("{error}"))
}

/// Steps of a shared array whose sums are exact: the bits of the CPU, dense and sparse, and of the sorted backwards, atomic.
pub fn array(context: &Context, seed: u64) {
    let config = exact(seed);
    let new = |config: &RobeConfig| SharedGroup::new(context, config.clone()).unwrap_or_else(|error| panic!("{error}"));
    let batches = [0, 1].map(|step| Bags { weights: None, ..bags(&config, seed + step, 8, 40) });
    for backward in WAYS {
        steps_are_the_cpus(&new, &config.clone().with_backward(backward), &batches);
    }
    exact_sums_are_the_sorted_ones(&new, seed, &config);
    steps_by_given_gradients(&new, seed);
}

/// Steps of a packed shared array, or of one with weights, decay and AdaGrad, against the model.
pub fn model(context: &Context, seed: u64) {
    for config in [config(seed), packed(seed)] {
        let backward = [Backward::Dense, Backward::Sparse, Backward::Atomic][seed as usize % 3];
        let atomic = backward == Backward::Atomic && config.precision == hotrow::Precision::Fp32;
        let config = config.with_backward(if atomic {
            backward
        } else {
            [Backward::Dense, Backward::Sparse][seed as usize % 2]
        });
        let mut group = SharedGroup::new(context, config.clone()).unwrap_or_else(|error| panic!("{config:?}: {error}"));
        for step in 0..2 {
            let bags = bags(&config, seed * 10 + step, 6, 30);
            let before = snapshot(&mut group);
            let found = forward(&mut group, &bags);
            close(&found, &outputs(&config, &weights(&config, &before), &bags))
                .unwrap_or_else(|error| panic!("model, seed {seed}: {error}"));
            let grads = random_grads(seed, found.len());
            group.backward(&grads).unwrap_or_else(|error| panic!("{error}"));
            let share = any_order(&config, &bags).max(2f64.powi(-20));
            moved_within(share, &config, &bags, &grads, [&before, &snapshot(&mut group)])
                .unwrap_or_else(|error| panic!("model, seed {seed}, {config:?}: {error}"));
        }
    }
}

/// Sorts and dedups of several blocks, against the standard library.
pub fn sort(context: &Context, seed: u64) {
    let mut source = Pcg64::seed_from_u64(seed);
    let n = [700, 1024, 3072, 3073, 13_000, 50_000][seed as usize % 6];
    let reach = [1, 3, 300, u32::MAX][source.random_range(0..4)];
    let keys: Vec<u32> = (0..n).map(|_| source.random_range(0..reach)).collect();
    let live = if source.random_bool(0.3) { n / 2 } else { n };
    for large in [false, true] {
        if !large && n > 1024 {
            continue;
        }
        let found = context
            .run_dedup(&keys, live as u32, 32, large)
            .unwrap_or_else(|error| panic!("sort, seed {seed}: {error}"));
        let mut wanted: Vec<(u32, u32)> = keys[..live].iter().copied().zip(0..).collect();
        wanted.sort_unstable();
        let found: Vec<(u32, u32)> = found.keys.into_iter().zip(found.order).collect();
        assert!(found == wanted, "sort, seed {seed}, {n} keys");
    }
}

/// The scale of a loss over random gradients, against the CPU's.
pub fn scaler(context: &Context, seed: u64) {
    let rule = LossScale::Backoff { min: 1.0, max: 64.0, factor: 2.0, window: 3 };
    let mut source = Pcg64::seed_from_u64(seed);
    let fail = |error: hotrow::Error| -> ! { panic!("scaler, seed {seed}: {error}") };
    let mut found = Scaler::new(context, rule).unwrap_or_else(|error| fail(error));
    let mut wanted = CpuScaler::new(rule).unwrap_or_else(|error| fail(error));
    for _ in 0..3 {
        let n = source.random_range(1..9000);
        let mut grads: Vec<f32> = (0..n).map(|_| source.random_range(-1.0..1.0)).collect();
        if source.random_bool(0.4) {
            grads[n / 2] = f32::INFINITY;
        }
        let descriptor = wgpu::util::BufferInitDescriptor {
            label: None,
            contents: bytemuck::cast_slice(&grads),
            usage: wgpu::BufferUsages::STORAGE,
        };
        let buffer = context.device().create_buffer_init(&descriptor);
        let mut encoder = context.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        found
            .encode_inspect(&mut encoder, FloatBuffer::F32(buffer.slice(..)), n as u64)
            .unwrap_or_else(|error| fail(error));
        found.encode_decide(&mut encoder).unwrap_or_else(|error| fail(error));
        context.queue().submit([encoder.finish()]);
        wanted.inspect(GradSlice::F32(&grads));
        let wanted = wanted.decide().unwrap_or_else(|error| fail(error));
        assert_eq!(found.state().unwrap_or_else(|error| fail(error)), wanted, "scaler, seed {seed}");
    }
}

/// Every run with a seed.
pub fn all(context: &Context, seed: u64) {
    group(context, seed);
    one_bag(context, seed);
    staged(context, seed);
    array(context, seed);
    model(context, seed);
    sort(context, seed);
    let few = few_groups(context);
    blocks(&few, seed);
    sort(&few, seed);
    scaler(context, seed);
}
