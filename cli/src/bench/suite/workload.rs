//! Measures a workload: brings a group of tables into a known state, times forward and backward over batches in turn, and records both.

use hotrow::internals::{Pieces as _, layout::WAYS};
use hotrow::wgpu::{self, DeviceType};
use hotrow::{Counters, Group, GroupConfig, Init, Mode, Placement, internals::Layout, prelude::*};

use super::bench::{Bench, LR};
use super::bytes::{Facts, HEAVY, kernel};
use super::shapes::Batch;
use hotrow_report::clock::{Clock, Inputs, Measured, Stage, memory, timed};
use hotrow_report::records::{Setting, Unit};
use hotrow_report::units::bytes;

/// A group's configuration, batches that warm its cache, and batches that are measured.
#[derive(Clone)]
pub(crate) struct Workload {
    pub(crate) name: String,
    /// A description of rows, batches, and how they are drawn.
    pub(crate) shape: String,
    /// The reason why the figures do not stand for the named shape, if so.
    pub(crate) scaled: Option<String>,
    pub(crate) config: GroupConfig,
    /// Rows that are pinned before the warm-up.
    pub(crate) pins: Vec<u32>,
    /// Batches of the warm-up, which has forwards only.
    pub(crate) warm: Vec<Batch>,
    pub(crate) batches: Vec<Batch>,
    pub(crate) backward: bool,
}

pub(crate) struct Taken {
    pub(crate) facts: Facts,
    pub(crate) measured: Measured,
    /// The stages, added up by kernel.
    kernels: Vec<Stage>,
    pieces: u32,
    windows: u32,
}

impl Workload {
    /// Measures the workload on a group of its configuration.
    pub(crate) fn run(&self, clock: &Clock, group: &mut Group) -> anyhow::Result<Taken> {
        clock.timeline.listen(false);
        if !self.pins.is_empty() {
            group.pin(&self.pins, WAYS)?;
        }
        warm(clock, group, &self.warm)?;
        let inputs = upload(clock, group, &self.batches);
        let mut turn = 0;
        let mut record = |group: &mut Group, phase: usize, encoder: &mut wgpu::CommandEncoder| {
            if phase == 1 {
                return group.encode_backward(encoder, inputs.grads.slice(..));
            }
            group.discard_pending();
            turn += 1;
            group.encode_forward(encoder, &inputs.batch(turn - 1), inputs.outputs.slice(..), Mode::Train)
        };
        let phases = if self.backward { &["forward", "backward"][..] } else { &["forward"] };
        // One whole step first, which allocates and compiles, is not counted.
        let mut encoder = clock.encoder();
        (0..phases.len()).try_for_each(|phase| record(group, phase, &mut encoder))?;
        clock.submit(encoder)?;
        group.check()?;
        let before: Counters = group.counters()?.into_iter().sum();
        let measured = clock.measure(phases, |phase, encoder| Ok(record(group, phase, encoder)?))?;
        group.check()?;
        let seen = group.counters()?.into_iter().sum::<Counters>() - before;
        let facts = self.facts(group.layout(), seen, measured.rounds as f64);
        let mut kernels: Vec<Stage> = Vec::new();
        for stage in &measured.stages {
            let stage = Stage { stage: kernel(stage.stage), ..stage.clone() };
            match kernels.iter_mut().find(|known| known.stage == stage.stage && known.phase == stage.phase) {
                Some(known) => known.add(&stage),
                None => kernels.push(stage),
            }
        }
        Ok(Taken { facts, measured, kernels, pieces: group.layout().pieces, windows: group.layout().windows() })
    }

    /// The mean counts of a step, from counters over `steps` steps and from the batches.
    fn facts(&self, layout: &Layout, seen: Counters, steps: f64) -> Facts {
        let mean = |all: u64| all as f64 / steps.max(1.0);
        let of_batches =
            |of: fn(&Batch) -> f64| self.batches.iter().map(of).fold(0.0, |a, b| a + b) / self.batches.len() as f64;
        Facts {
            accesses: mean(seen.accesses),
            hits: mean(seen.hits),
            distinct: mean(seen.unique),
            missing: mean(seen.unique_misses),
            admitted: mean(seen.admitted),
            write_backs: mean(seen.write_backs),
            bypassed: mean(seen.bypass_reads),
            outputs: of_batches(|batch| batch.offsets().len() as f64 - 1.0),
            heavy_accesses: of_batches(|batch| batch.repeats().into_iter().filter(|&n| n > HEAVY).map(f64::from).sum()),
            sets: f64::from(layout.sets),
            row: 4.0 * f64::from(layout.row.dim),
            state: 4.0 * f64::from(layout.row.state),
            record: layout.stride() as f64,
            passes: passes(layout, mean(seen.accesses) as u32),
        }
    }

    /// The setting of the records: placement, and why the figures do not stand for the named shape, if so.
    pub(super) fn setting(&self) -> Setting {
        self.scaled(Setting::default().with("placement", self.config.placement.to_string()))
    }

    fn scaled(&self, setting: Setting) -> Setting {
        self.scaled.iter().fold(setting, |setting, why| setting.with("scaled", why.as_str()))
    }
}

fn upload(clock: &Clock, group: &Group, batches: &[Batch]) -> Inputs {
    let parts: Vec<_> = batches.iter().map(|batch| (batch.indices(), batch.offsets())).collect();
    Inputs::new(clock, &parts, group.config().dim, LR)
}

/// Brings the rows of these batches into the cache.
pub(super) fn warm(clock: &Clock, group: &mut Group, batches: &[Batch]) -> anyhow::Result<()> {
    for batch in batches {
        let inputs = upload(clock, group, std::slice::from_ref(batch));
        let mut encoder = clock.encoder();
        group.encode_forward(&mut encoder, &inputs.batch(0), inputs.outputs.slice(..), Mode::Train)?;
        group.discard_pending();
        clock.submit(encoder)?;
    }
    Ok(())
}

/// 8-bit passes of the sort of misses in forward, and of the sort of `accesses` in backward: by rows or by places, whichever needs fewer.
fn passes(layout: &Layout, accesses: u32) -> [f64; 2] {
    let backward = layout.row_bits().min(layout.place_bits(accesses));
    // A batch of at most 1,024 is sorted in shared memory: one read and one write, as in one pass.
    let passes = |bits: u32| f64::from(if accesses <= 1024 { 1 } else { bits.div_ceil(8) });
    [layout.spread().key_bits(), backward].map(passes)
}

impl Taken {
    fn seconds(&self, phase: &str) -> Option<f64> {
        self.measured.phase(phase).map(|times| times.median)
    }

    /// Bytes that all kernels of a phase must move.
    fn bytes(&self, phase: &str) -> f64 {
        let kernels = self.kernels.iter().filter(|kernel| kernel.phase == phase);
        kernels.filter_map(|kernel| self.facts.bytes(kernel.stage, phase == "backward")).sum()
    }
}

pub(super) fn record(bench: &mut Bench<'_>, workload: &Workload, taken: &Taken) {
    let (facts, copy, bus) = (&taken.facts, bench.copy, bench.bus);
    let GroupConfig { precision, optimizer, placement, .. } = &workload.config;
    let name = &workload.name;
    bench.run.describe(name, format!("{}; {precision}, {}", workload.shape, optimizer.kind));
    let mut at = bench.run.at(name, &workload.setting());
    at.push("hit rate", facts.hit_rate(), Unit::Share);
    at.push("missing", facts.missing / facts.distinct.max(1.0), Unit::Share);
    for (what, value) in [
        ("accesses", facts.accesses),
        ("distinct", facts.distinct),
        ("admitted", facts.admitted),
        ("write-backs", facts.write_backs),
        ("bypassed", facts.bypassed),
        ("outputs", facts.outputs),
        ("pieces", taken.pieces.into()),
        ("windows", taken.windows.into()),
        ("dispatches", taken.measured.dispatches() as f64),
    ] {
        at.push(what, value, Unit::Count);
    }
    for (phase, backward) in [("forward", false), ("backward", true)] {
        let Some(times) = taken.measured.phase(phase) else { continue };
        let share = copy.map(|copy| taken.bytes(phase) / times.median / copy);
        at.timed(phase, times);
        at.push(&format!("{phase} logical"), facts.logical(backward) / times.median, Unit::BytesPerSecond);
        at.push(&format!("{phase} table bytes"), facts.table_bytes(backward), Unit::Bytes);
        at.push(&format!("{phase} of copy"), share, Unit::Share);
        let mine = taken.kernels.iter().filter(|kernel| kernel.phase == phase);
        let dispatches = mine.map(|kernel| kernel.dispatches).sum::<u64>();
        at.push(&format!("{phase} dispatches"), dispatches as f64, Unit::Count);
    }
    let both = taken.seconds("forward").zip(taken.seconds("backward"));
    at.push("step", both.map(|(forward, backward)| forward + backward), Unit::Seconds);
    at.timed("step, host clock", taken.measured.wall);
    at.push("lookups a second", facts.accesses / taken.measured.wall.median, Unit::PerSecond);
    if *placement == Placement::Mapped {
        let crossing = bus.map(|bus| facts.table_bytes(false) / bus);
        // The bound is the longer of two times: all bytes within device memory at copy speed, or the missed bytes over the bus.
        let bound = copy.zip(crossing).map(|(copy, crossing)| (taken.bytes("forward") / copy).max(crossing));
        let exchange = taken.kernels.iter().find(|kernel| kernel.stage == "exchange").and_then(|kernel| kernel.times);
        let forward = taken.seconds("forward");
        let exchange = exchange.map(|times| times.median).filter(|_| facts.missing > 0.0);
        for (what, least, seconds) in [
            ("forward of bus", crossing, forward),
            ("exchange of bus", crossing, exchange),
            ("forward of bound", bound, forward),
        ] {
            at.push(what, least.zip(seconds).map(|(least, seconds)| least / seconds), Unit::Share);
        }
    }
    for kernel in &taken.kernels {
        let seconds = |kernel: &Stage| kernel.times.map_or(0.0, |times| times.median);
        let bytes = facts.bytes(kernel.stage, kernel.phase == "backward");
        let all: f64 = taken.kernels.iter().filter(|other| other.phase == kernel.phase).map(seconds).sum();
        let minor = seconds(kernel) < 0.02 * all && bytes.unwrap_or(0.0) < 0.02 * taken.bytes(kernel.phase);
        let setting = workload.scaled(Setting::default().with("phase", kernel.phase).with("kernel", kernel.stage));
        let setting = if minor { setting.with("minor", "yes") } else { setting };
        let rate = bytes.zip(kernel.times).map(|(bytes, times)| bytes / times.median);
        let mut at = bench.run.at(name, &setting);
        at.timed("time", kernel.times);
        at.push("must move", bytes, Unit::Bytes);
        at.push("rate", rate, Unit::BytesPerSecond);
        at.push("of copy", rate.zip(copy).map(|(rate, copy)| rate / copy), Unit::Share);
        at.push("dispatches", kernel.dispatches as f64, Unit::Count);
    }
}

/// Cuts the table into `pieces` pieces: as bindings of `binding` bytes cut it, or into equal ones if these make fewer.
fn cut(config: &mut GroupConfig, pieces: u32, binding: u64) -> anyhow::Result<Layout> {
    let layout = Layout::new(config, binding)?;
    if layout.pieces < pieces {
        config.set_piece_bytes(Some(u64::from(layout.total_rows.div_ceil(pieces)) * layout.stride()));
    }
    let layout = Layout::new(config, binding)?;
    anyhow::ensure!(
        layout.pieces == pieces,
        "wanted {} of records in {pieces} pieces, found bindings of {}, which make {}; take --size small",
        bytes(layout.table_bytes() as f64),
        bytes(binding as f64),
        layout.pieces
    );
    Ok(layout)
}

/// Refuses a table that does not fit into the `found` bytes that the host has left, since a driver hands memory out page by page until the
/// process dies.
fn host_can_hold(placement: Placement, layout: &Layout, software: bool, found: u64) -> anyhow::Result<()> {
    if placement == Placement::Device && !software {
        return Ok(());
    }
    // A software driver has the cache there too. A tenth is left for batches and scratch.
    let cache = if software { u64::from(layout.slots()) * layout.slot_bytes() } else { 0 };
    let wanted = layout.table_bytes() + cache;
    anyhow::ensure!(
        wanted <= found / 10 * 9,
        "wanted {} of host memory for the records, found {} left; take --size small",
        bytes(wanted as f64),
        bytes(found as f64)
    );
    Ok(())
}

/// Measures a table of zeros, which the device clears by itself: to pack 37.5 GB on the host takes minutes, and the bytes that a step moves do
/// not depend on the values.
pub(super) fn measure_whole(bench: &mut Bench<'_>, workload: &mut Workload, pieces: u32) -> anyhow::Result<Taken> {
    workload.config.init = Init::Constant(0.0);
    let (config, clock) = (&mut workload.config, bench.clock);
    let layout = cut(config, pieces, clock.binding())?;
    let software = clock.timed.caps().device_type == DeviceType::Cpu;
    host_can_hold(config.placement, &layout, software, memory(true).unwrap_or(u64::MAX))?;
    let (group, made) = timed(|| -> anyhow::Result<Group> {
        let group = Group::new(&clock.timed, config.clone())?;
        // The device clears the records in this submission's time.
        clock.submit(clock.encoder())?;
        Ok(group)
    });
    let mut group = group?;
    let records = layout.table_bytes() as f64;
    let mut at = bench.run.at(&workload.name, &workload.setting());
    at.push("record bytes", records, Unit::Bytes);
    at.push("made", made, Unit::Seconds);
    workload.shape += &format!("; {} of records in {pieces} pieces, of zeros", bytes(records));
    workload.run(clock, &mut group)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotrow::{Optimizer, Precision};

    #[test]
    fn the_whole_shape_has_18_pieces_and_needs_its_memory() {
        let whole = |rows: u32, binding: u64| {
            let mut config = GroupConfig::new(&[rows; 10], 128).with_precision(Precision::Int8);
            config.optimizer = Optimizer::row_wise_adagrad(1e-3);
            cut(&mut config, 18, binding)
        };
        // The binding of a card is 2 GiB - 4 B, in whole 256 bytes; of a software driver 128 MiB.
        let layout = whole(26_800_000, (2 << 30) - 256).unwrap();
        assert_eq!((layout.total_rows, layout.stride(), layout.pieces), (268_000_000, 140, 18));
        assert_eq!((layout.table_bytes(), layout.rows_per_piece), (37_520_000_000, 15_339_167));
        assert_eq!(whole(60_000, 128 << 20).unwrap().pieces, 18);
        let refused = whole(26_800_000, 128 << 20).unwrap_err().to_string();
        assert!(refused.contains("wanted 37.52 GB of records in 18 pieces, found bindings of 134.22 MB"), "{refused}");
        for (placement, software, found, refused) in [
            (Placement::Mapped, false, 38_000_000_000, true),
            (Placement::Mapped, false, 50_000_000_000, false),
            (Placement::Device, true, 38_000_000_000, true),
            (Placement::Device, false, 0, false),
        ] {
            let held = host_can_hold(placement, &layout, software, found);
            assert_eq!(held.is_err(), refused, "{placement:?}, {found}: {held:?}");
        }
    }
}
