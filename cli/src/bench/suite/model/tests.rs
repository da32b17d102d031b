//! The counts of the model against those of the lane executor.

use super::super::bytes::{Facts, Pattern};
use super::super::shapes::Batch;
use super::super::workload::Workload;
use super::{Counts, Device, Work, backward, forward};
use hotrow::{Context, ContextOptions, Group, GroupConfig, LookupBody, Optimizer, Pooling, Precision};
use hotrow_harness::lanes::{
    Options, Order,
    device::{Config, World, open},
};
use std::sync::Arc;

fn executor(lookup: LookupBody) -> (Context, Arc<World>) {
    let options = Options { counting: true, spurious: 0, order: Order::Ascending, ..Options::default() };
    let (device, queue, world) = open(&Config { options, ..Config::default() });
    let context = Context::with_options(&device, &queue, &ContextOptions::default().lookup(lookup)).unwrap();
    (context, world)
}

/// A row of what is compared.
struct Row {
    phase: &'static str,
    stage: String,
    model: Counts,
    found: Counts,
}

fn of(found: &hotrow_harness::lanes::Counts) -> Counts {
    Counts {
        dispatches: found.dispatches as f64,
        workgroups: found.workgroups as f64,
        sectors: found.sectors as f64,
        lines: found.lines as f64,
        atomics: found.atomics as f64,
        hottest: found.hottest as f64,
        barriers: found.barriers as f64,
        ..Counts::default()
    }
}

/// Runs a step on the executor, and reckons it.
fn step(workload: &Workload, lookup: LookupBody) -> Vec<Row> {
    let (context, world) = executor(lookup);
    let mut group = Group::new(&context, workload.config.clone()).unwrap();
    let outputs = |batch: &Batch| (batch.offsets().len() - 1) * workload.config.dim as usize;
    for batch in &workload.warm {
        group.forward(&batch.indices(), &batch.offsets(), None).unwrap();
        group.backward(&vec![0.01; outputs(batch)]).unwrap();
    }
    let before = group.counters().unwrap().into_iter().sum();
    let batch = &workload.batches[0];
    world.take_report();
    group.forward(&batch.indices(), &batch.offsets(), None).unwrap();
    let forwards = world.take_report().counts;
    group.backward(&vec![0.01; outputs(batch)]).unwrap();
    let backwards = world.take_report().counts;
    let seen = group.counters().unwrap().into_iter().sum::<hotrow::Counters>() - before;
    let facts = Facts { pattern: Pattern::of(batch), ..workload.facts(group.layout(), seen, 1.0) };
    eprintln!("{}: {facts:?}", workload.name);
    let device = Device { lookup, grid: 64.0, wide: 64.0, shards_at_once: 1.0 };
    let work = Work {
        facts,
        layout: group.layout().clone(),
        tables: workload.config.tables.len() as f64,
        mapped: false,
        device,
    };
    let mut rows = Vec::new();
    for (phase, found, model) in [("forward", forwards, forward(&work)), ("backward", backwards, backward(&work))] {
        let missing: Vec<_> = found.keys().filter(|name| !model.iter().any(|stage| stage.name == **name)).collect();
        assert!(missing.is_empty(), "stages that the model lacks: {missing:?}");
        for stage in model {
            let found = found.get(stage.name).map(of).unwrap_or_default();
            rows.push(Row { phase, stage: stage.name.to_owned(), model: stage.counts(), found });
        }
    }
    rows
}

fn table(rows: &[Row]) {
    for Row { phase, stage, model: m, found: f } in rows {
        let off = |a: f64, b: f64| (a - b).abs() > 0.04 * b + 1.0;
        if !(off(m.sectors, f.sectors)
            || off(m.lines, f.lines)
            || off(m.atomics, f.atomics)
            || off(m.hottest, f.hottest)
            || off(m.barriers, f.barriers))
        {
            continue;
        }
        let cell = |a: f64, b: f64| format!("{a:9.0} {b:8.0} {:+4.0}%", 100.0 * (a - b) / b.max(1.0));
        eprintln!(
            "{phase:8} {stage:10} d {} {} wg {} {} s {} l {} a {} h {} b {}",
            m.dispatches,
            f.dispatches,
            m.workgroups,
            f.workgroups,
            cell(m.sectors, f.sectors),
            cell(m.lines, f.lines),
            cell(m.atomics, f.atomics),
            cell(m.hottest, f.hottest),
            cell(m.barriers, f.barriers)
        );
    }
}

fn config(tables: &[u32], dim: u32, precision: Precision, optimizer: Optimizer, cache: u32) -> GroupConfig {
    let mut config = GroupConfig::new(tables, dim);
    (config.precision, config.optimizer, config.cache_rows, config.pooling) =
        (precision, optimizer, cache, Pooling::Sum);
    config
}

fn workloads() -> Vec<(Workload, LookupBody)> {
    use super::super::shapes::{distinct, pool, random, shuffle, uniform, zipf};
    let mut random = random(1, 1);
    let mut all = Vec::new();
    let mut add = |name: &str, config: GroupConfig, lookup, warm: Vec<Batch>, batch: Batch| {
        let workload = Workload { warm, batches: vec![batch], ..Workload::new(name, "", config) };
        all.push((workload, lookup));
    };
    // All rows resident.
    let rows = pool(2048, 64);
    let hits = config(&[2048], 128, Precision::Fp32, Optimizer::sgd(0.1), 2048);
    let warm: Vec<Batch> = rows.chunks(1024).map(|rows| Batch::of(rows.to_vec(), 20)).collect();
    add("hits", hits.clone(), LookupBody::Lanes32, warm.clone(), Batch::of(uniform(&rows, 4000, &mut random), 20));
    add("hits lanes8", hits.clone(), LookupBody::Lanes8, warm.clone(), Batch::of(uniform(&rows, 900, &mut random), 20));
    add(
        "hits zipf",
        config(&[2048], 128, Precision::Fp32, Optimizer::adagrad(0.1), 2048),
        LookupBody::Lane1,
        warm,
        Batch::of(zipf(&rows, 4000, 1.05, &mut random).unwrap(), 20),
    );
    // Misses with evictions.
    let all_rows: Vec<u32> = (0..20_000).collect();
    for (name, dim, precision, optimizer, n) in [
        ("misses int8", 128, Precision::Int8, Optimizer::row_wise_adagrad(0.1), 2500),
        ("misses fp16", 64, Precision::Fp16, Optimizer::adagrad(0.1), 2000),
        ("misses small", 32, Precision::Fp32, Optimizer::sgd(0.1), 800),
    ] {
        let warm = (0..2).map(|_| Batch::of(uniform(&all_rows, n, &mut random), 10)).collect();
        add(
            name,
            config(&[20_000], dim, precision, optimizer, 1024),
            LookupBody::Lanes32,
            warm,
            Batch::of(uniform(&all_rows, n, &mut random), 10),
        );
    }
    // No cache.
    for (name, precision) in [("uncached int8", Precision::Int8), ("uncached fp32", Precision::Fp32)] {
        let mut rows = distinct(&all_rows, 1500);
        shuffle(&mut rows, &mut random);
        let batch = Batch::of(rows, 20);
        add(name, config(&[20_000], 128, precision, Optimizer::sgd(0.1), 0), LookupBody::Lanes32, vec![], batch);
    }
    // Several tables.
    let feature = |random: &mut _| zipf(&all_rows, 500, 1.05, random).unwrap();
    let batch = |random: &mut _| Batch { features: (0..5).map(|_| feature(random)).collect(), bag: 10 };
    let warm = vec![batch(&mut random), batch(&mut random)];
    let batch = batch(&mut random);
    add(
        "tables",
        config(&[20_000; 5], 128, Precision::Int8, Optimizer::row_wise_adagrad(0.1), 4096),
        LookupBody::Lanes32,
        warm,
        batch,
    );
    all
}

#[test]
fn alone() {
    use hotrow::{Count, Sorter};
    use wgpu::util::DeviceExt as _;
    let (context, world) = executor(LookupBody::Lanes32);
    let n = 53_000u32;
    let keys: Vec<u32> = (0..n).map(hotrow::hash::fmix32).collect();
    let buffer = context.device().create_buffer_init(&wgpu::util::BufferInitDescriptor {
        label: None,
        contents: bytemuck::cast_slice(&keys),
        usage: wgpu::BufferUsages::STORAGE,
    });
    let sorter = Sorter::new(&context, n).unwrap();
    let mut encoder = context.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    sorter.record_sort(&mut encoder, buffer.slice(..), Some(buffer.slice(..)), Count::Host(n), 32).unwrap();
    context.queue().submit([encoder.finish()]);
    let found = world.take_report().counts;
    let config = config(&[1], 4, Precision::Fp32, Optimizer::sgd(0.1), 0);
    let device = Device { lookup: LookupBody::Lanes32, grid: 64.0, wide: 64.0, shards_at_once: 1.0 };
    let work = Work {
        facts: Default::default(),
        layout: hotrow::Layout::new(&config, 1 << 20).unwrap(),
        tables: 1.0,
        mapped: false,
        device,
    };
    let rows: Vec<Row> = super::sort_alone(&work, f64::from(n), 32)
        .into_iter()
        .map(|stage| Row {
            phase: "sort",
            stage: stage.name.into(),
            model: stage.counts(),
            found: of(&found[stage.name]),
        })
        .collect();
    table(&rows);
    eprintln!("{:?}", found.keys());
}

#[test]
fn show() {
    for (workload, lookup) in workloads() {
        let start = std::time::Instant::now();
        let rows = step(&workload, lookup);
        table(&rows);
        eprintln!("{:?}\n", start.elapsed());
    }
}
