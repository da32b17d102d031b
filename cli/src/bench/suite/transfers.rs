//! What crosses the bus, and what windows cost: 95 % hits over the bus, no cache at all, a cache larger than a binding.

use super::Bench;
use super::cases::{BAG, DIM, LR, TURNS, config, fill, mapped, mostly_hits};
use super::shapes::{Batch, distinct, pool, random, uniform};
use super::workload::{Case, Workload};
use crate::report::Unit;
use crate::uvm::{UvmDevice, UvmModel, UvmTable};
use hotrow::internals::Pieces as _;
use hotrow::{Optimizer, Precision};

/// 95 % hits over the bus: INT8 with a cache, FP32 without, unified memory.
pub(super) fn over_the_bus(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let (n, rows) = bench.size.mapped();
    let slots = (2 * n as u32).next_multiple_of(32);
    let (hot, batches) = mostly_hits(bench, (n, rows), 26);
    let mut config = config(&[rows], Precision::Int8, Optimizer::sgd(LR), slots, bench.seed);
    config.placement = mapped(bench.lab);
    let shape = format!("{n} distinct indices, 95 % of them to rows that are always asked for, {rows} rows x {DIM}");
    let mut workload = Workload::new("mapped-int8", &shape, config);
    workload.warm = vec![Batch::of(hot.clone(), BAG)];
    workload.batches = batches;
    let cached = bench.measure(&workload)?;
    // The bound: moving what must move in device memory, or what must cross the bus, whichever takes longer.
    let device = bench.copy.map(|copy| cached.bytes("forward") / copy);
    let bus = bench.bus.map_or(Some(0.0), |bus| Some(cached.facts.table_bytes(false) / bus));
    let bound = device.zip(bus).map(|(device, bus)| device.max(bus));
    let forward = cached.seconds("forward");
    bench.compare(&cached, "forward of bound", bound.zip(forward).map(|(a, b)| a / b), Unit::Share);
    workload.name = "mapped-fp32-uncached".to_owned();
    workload.warm.clear();
    (workload.config.precision, workload.config.cache_rows) = (Precision::Fp32, 0);
    let uncached = bench.measure(&workload)?.seconds("forward");
    bench.compare(&cached, "against uncached FP32", uncached.zip(forward).map(|(a, b)| a / b), Unit::Times);
    let steps: Vec<Vec<u32>> = workload.batches.iter().map(Batch::indices).collect();
    let moved = unified(bench, &cached, &hot, &steps, (rows, slots))?;
    bench.compare(&cached, "against pages", forward.map(|forward| moved / forward), Unit::Times);
    Ok(())
}

/// The UVM model over the same steps with the same device bytes, faults for free: predicted, and with its pages really moved; seconds of the
/// latter's forward.
fn unified(
    bench: &mut Bench<'_>,
    cached: &Case,
    hot: &[u32],
    steps: &[Vec<u32>],
    (rows, slots): (u32, u32),
) -> anyhow::Result<f64> {
    let default = UvmModel::default();
    let bus_bytes_per_second = bench.bus.unwrap_or(default.bus_bytes_per_second);
    let model = UvmModel { bus_bytes_per_second, fault_seconds: 0.0, ..default };
    let row = u64::from(DIM) * 4;
    let mut table = UvmTable::new(model, row, u64::from(slots) * row)?;
    let first = |row: u32, floats: &mut [f32]| floats.fill(row as f32 * 1e-6);
    let mut device = UvmDevice::new(&bench.lab.timed, table.clone(), rows, DIM, first)?;
    let [mut bytes, mut predicted, mut played] = [0.0; 3];
    // After as many steps as it takes to throw out the rows that no step asks for.
    let warm = steps.len() / 2;
    for (number, rows) in std::iter::once(hot).chain(steps.iter().map(Vec::as_slice)).enumerate() {
        let offsets = Batch::of(rows.to_vec(), BAG).offsets();
        let counted = table.pass(rows, false);
        table.pass(rows, true);
        let forward = device.forward(rows, &offsets)?;
        device.backward(rows, &offsets, &vec![LR; (offsets.len() - 1) * DIM as usize], LR)?;
        if number > warm {
            bytes += forward.moved.bytes_in as f64;
            predicted += model.seconds(&counted);
            played += forward.seconds;
        }
    }
    let [bytes, predicted, played] = [bytes, predicted, played].map(|sum| sum / (steps.len() - warm).max(1) as f64);
    let gather = cached.kernel("gather", "forward").unwrap_or(0.0);
    let (name, setting) = ("unified memory", &cached.setting);
    bench.run.describe(
        name,
        "the steps of mapped-int8 in pages of 64 KiB, faults for free; predicted with the gather measured there",
    );
    bench.run.push("bytes in", name, setting, bytes, Unit::Bytes);
    bench.run.push("forward, predicted", name, setting, predicted + gather, Unit::Seconds);
    bench.run.push("forward, pages moved", name, setting, played, Unit::Seconds);
    Ok(played)
}

/// No cache: every row of a batch crosses the bus. FP32 against the bus itself, INT8 against FP32.
pub(super) fn uncached(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let (n, rows) = bench.size.mapped();
    // No row is in two batches: nothing is found in a cache of the chip.
    let all = distinct(&(0..rows).collect::<Vec<_>>(), TURNS * n);
    let mut cases = Vec::new();
    for (name, precision) in [("uncached-fp32", Precision::Fp32), ("uncached-int8", Precision::Int8)] {
        let mut config = config(&[rows], precision, Optimizer::sgd(LR), 0, bench.seed);
        config.placement = mapped(bench.lab);
        let shape = format!("{n} distinct indices over {rows} rows x {DIM}, no cache");
        let batches = all.chunks_exact(n).map(|rows| Batch::of(rows.to_vec(), BAG)).collect();
        let workload = Workload { batches, backward: false, ..Workload::new(name, shape, config) };
        cases.push(bench.measure(&workload)?);
    }
    let read = |case: &Case| (case.facts.admitted + case.facts.bypassed) * case.facts.record;
    let [fp32, int8] = [&cases[0], &cases[1]];
    for (what, seconds) in
        [("forward of bus", fp32.seconds("forward")), ("exchange of bus", fp32.kernel("exchange", "forward"))]
    {
        let share = seconds.zip(bench.bus).map(|(seconds, bus)| read(fp32) / seconds / bus);
        bench.compare(fp32, what, share, Unit::Share);
    }
    bench.compare(int8, "bytes against FP32", Some(read(int8) / read(fp32)), Unit::Share);
    let time = int8.seconds("forward").zip(fp32.seconds("forward")).map(|(int8, fp32)| int8 / fp32);
    bench.compare(int8, "time against FP32", time, Unit::Share);
    Ok(())
}

/// A cache larger than a binding: what its windows cost gather, and how it fares at its full size.
pub(super) fn windows(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let n = bench.size.resident().0;
    let slot = u64::from(DIM) * 4;
    let (large, window) = bench.size.windows();
    let binding = bench.lab.binding();
    let window = if binding < large { binding.min(window) } else { window };
    // Whole slots; the last window may be shorter than the others.
    let cut = (window / large.div_ceil(window)).next_multiple_of(slot);
    let mut one = None;
    for (name, bytes, window) in
        [("windows-one", window, window), ("windows-cut", window, cut), ("windows-large", large, window)]
    {
        let slots = bench.slots(bytes, slot);
        let rows = pool(slots, slots / 32);
        let mut random = random(bench.seed, 7);
        // The table beside it is INT8: the cost of a hit does not depend on it, and it is made sooner.
        let mut config = config(&[slots], Precision::Int8, Optimizer::sgd(LR), slots, bench.seed);
        config.set_window_bytes(Some(window));
        let windows = hotrow::Layout::new(&config, binding)?.windows();
        let mebibytes = (u64::from(slots) * slot) >> 20;
        let shape = format!(
            "{n} indices, uniform, over {} resident rows x {DIM}, {mebibytes} MiB of slots in {windows} windows, bags of {BAG}",
            rows.len()
        );
        let batches = (0..TURNS).map(|_| Batch::of(uniform(&rows, n, &mut random), BAG)).collect();
        let warm = fill(&rows, n);
        let case = bench.measure(&Workload { warm, batches, backward: false, ..Workload::new(name, shape, config) })?;
        let gather = case.kernel("gather", "forward");
        bench.compare(&case, "gather against one window", gather.zip(one).map(|(own, one)| own / one), Unit::Times);
        bench.compare(&case, "windows", Some(f64::from(windows)), Unit::Count);
        one = one.or(gather);
    }
    Ok(())
}
