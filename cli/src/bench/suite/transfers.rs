//! Bytes over the bus, and the cost of windows: 95 % hits over the bus, no cache, a cache larger than a binding.

use super::bench::{Bench, DIM};
use super::cases::{BAG, LR, TURNS, fill, mostly_hits};
use super::shapes::{Batch, distinct, pool, random, uniform};
use super::workload::Workload;
use crate::report::{Setting, Unit};
use crate::uvm::{UvmDevice, UvmModel, UvmTable};
use hotrow::internals::Pieces as _;
use hotrow::{Layout, Optimizer, Precision};

/// Indices of a batch and rows of the table, small and full.
const MAPPED: [(usize, u32); 2] = [(2048, 40_000), (1 << 19, 8_000_000)];

/// Measures 95 % hits over the bus: INT8 with a cache, FP32 without a cache, unified memory.
pub(super) fn over_the_bus(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let (n, rows) = bench.size.of(MAPPED[0], MAPPED[1]);
    let slots = (2 * n as u32).next_multiple_of(32);
    let (hot, batches) = mostly_hits(bench, (n, rows), 26);
    let mut config = bench.config(&[rows], Precision::Int8, Optimizer::sgd(LR), slots);
    config.placement = bench.mapped();
    let shape = format!("{n} distinct indices, 95 % of them to rows that are always asked for, {rows} rows x {DIM}");
    let mut workload = Workload::new("mapped-int8", &shape, config);
    workload.warm = vec![Batch::of(hot.clone(), BAG)];
    workload.batches = batches;
    let cached = bench.measure(&workload)?;
    let setting = workload.setting();
    // The bound is the longer of two times: all bytes within device memory at copy speed, or the missed bytes over the bus.
    let device = bench.copy.map(|copy| cached.bytes("forward") / copy);
    let bus = bench.bus.map_or(Some(0.0), |bus| Some(cached.facts.table_bytes(false) / bus));
    let bound = device.zip(bus).map(|(device, bus)| device.max(bus)).zip(cached.seconds("forward"));
    bench.run.at("mapped-int8", &setting).push("forward of bound", bound.map(|(a, b)| a / b), Unit::Share);
    workload.name = "mapped-fp32-uncached".to_owned();
    workload.warm.clear();
    (workload.config.precision, workload.config.cache_rows) = (Precision::Fp32, 0);
    bench.measure(&workload)?;
    let steps: Vec<Vec<u32>> = std::iter::once(hot).chain(workload.batches.iter().map(Batch::indices)).collect();
    unified(bench, &setting, &steps, (rows, slots))
}

/// Unified memory over the same steps with the same device bytes and free faults: predicted by the model, and measured with moved pages.
fn unified(
    bench: &mut Bench<'_>,
    setting: &Setting,
    steps: &[Vec<u32>],
    (rows, slots): (u32, u32),
) -> anyhow::Result<()> {
    let default = UvmModel::default();
    let bus_bytes_per_second = bench.bus.unwrap_or(default.bus_bytes_per_second);
    let model = UvmModel { bus_bytes_per_second, fault_seconds: 0.0, ..default };
    let row = u64::from(DIM) * 4;
    let mut table = UvmTable::new(model, row, u64::from(slots) * row)?;
    let first = |row: u32, floats: &mut [f32]| floats.fill(row as f32 * 1e-6);
    let mut device = bench.lab.map(|lab| UvmDevice::new(&lab.timed, table.clone(), rows, DIM, first)).transpose()?;
    let [mut bytes, mut predicted, mut played] = [0.0; 3];
    // The warm-up throws out the rows that no step asks for.
    let warm = (steps.len() - 1) / 2;
    for (number, rows) in steps.iter().enumerate() {
        let offsets = Batch::of(rows.clone(), BAG).offsets();
        let counted = table.pass(rows, false);
        table.pass(rows, true);
        let mut moved = (counted.bytes_in as f64, 0.0);
        if let Some(device) = &mut device {
            let forward = device.forward(rows, &offsets)?;
            device.backward(rows, &offsets, &vec![LR; (offsets.len() - 1) * DIM as usize], LR)?;
            moved = (forward.moved.bytes_in as f64, forward.seconds);
        }
        if number > warm {
            bytes += moved.0;
            predicted += model.seconds(&counted);
            played += moved.1;
        }
    }
    let [bytes, predicted, played] = [bytes, predicted, played].map(|sum| sum / (steps.len() - 1 - warm) as f64);
    let gather = bench.run.value("time", "mapped-int8", "phase=forward; kernel=gather").unwrap_or(0.0);
    bench.run.describe(
        "unified memory",
        "the steps of mapped-int8 in pages of 64 KiB, faults for free; predicted with the gather measured there",
    );
    let mut at = bench.run.at("unified memory", setting);
    at.push("bytes in", bytes, Unit::Bytes);
    at.push("forward, predicted", predicted + gather, Unit::Seconds);
    // Without a device the pages are moved in the predicted time.
    at.push("forward, pages moved", if device.is_some() { played } else { predicted + gather }, Unit::Seconds);
    Ok(())
}

/// Measures tables without a cache, whose rows all cross the bus: FP32 against the speed of the bus, INT8 against FP32.
pub(super) fn uncached(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let (n, rows) = bench.size.of(MAPPED[0], MAPPED[1]);
    // No row is in two batches, so a chip's cache has none.
    let all = distinct(&(0..rows).collect::<Vec<_>>(), TURNS * n);
    for (name, precision) in [("uncached-fp32", Precision::Fp32), ("uncached-int8", Precision::Int8)] {
        let mut config = bench.config(&[rows], precision, Optimizer::sgd(LR), 0);
        config.placement = bench.mapped();
        let shape = format!("{n} distinct indices over {rows} rows x {DIM}, no cache");
        let batches = all.chunks_exact(n).map(|rows| Batch::of(rows.to_vec(), BAG)).collect();
        let workload = Workload { batches, backward: false, ..Workload::new(name, shape, config) };
        let case = bench.measure(&workload)?;
        if precision == Precision::Fp32 {
            let exchange = bench.run.value("time", name, "phase=forward; kernel=exchange");
            let mut at = bench.run.at(name, &workload.setting());
            for (what, seconds) in [("forward of bus", case.seconds("forward")), ("exchange of bus", exchange)] {
                let share = seconds.zip(bench.bus).map(|(seconds, bus)| case.facts.table_bytes(false) / seconds / bus);
                at.push(what, share, Unit::Share);
            }
        }
    }
    Ok(())
}

/// Measures a cache larger than a binding: the cost of its windows for gather, and its figures at full size.
pub(super) fn windows(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let (n, slot) = (bench.resident().0, u64::from(DIM) * 4);
    // Bytes of the cache, and the window size to use if the device's own binding is larger than the cache.
    let (large, window) = bench.size.of((10 << 20, 4 << 20), (5 << 30, 2 << 30));
    let binding = bench.lab()?.binding();
    let window = if binding < large { binding.min(window) } else { window };
    // A window has whole slots; the last one may be shorter.
    let cut = (window / large.div_ceil(window)).next_multiple_of(slot);
    for (name, bytes, window) in
        [("windows-one", window, window), ("windows-cut", window, cut), ("windows-large", large, window)]
    {
        let slots = bench.slots(bytes, slot);
        let rows = pool(slots, slots / 32);
        let mut random = random(bench.seed, 7);
        // The table is INT8, since it is filled sooner and the cost of a hit does not depend on it.
        let mut config = bench.config(&[slots], Precision::Int8, Optimizer::sgd(LR), slots);
        config.set_window_bytes(Some(window));
        let windows = Layout::new(&config, binding)?.windows();
        let mebibytes = (u64::from(slots) * slot) >> 20;
        let shape = format!(
            "{n} indices, uniform, over {} resident rows x {DIM}, {mebibytes} MiB of slots in {windows} windows, bags of {BAG}",
            rows.len()
        );
        let batches = (0..TURNS).map(|_| Batch::of(uniform(&rows, n, &mut random), BAG)).collect();
        let warm = fill(&rows, n);
        let workload = Workload { warm, batches, backward: false, ..Workload::new(name, shape, config) };
        bench.measure(&workload)?;
        bench.run.at(name, &workload.setting()).push("windows", f64::from(windows), Unit::Count);
    }
    Ok(())
}
