//! Measures a workload: brings a group of tables into a known state, times forward and backward over batches in turn, and records both.

use hotrow::internals::layout::WAYS;
use hotrow::{Counters, Error, Group, GroupConfig, Layout, Placement, wgpu};

use super::bench::Bench;
use super::bytes::{Facts, HEAVY, kernel};
use super::cases::Case;
use super::shapes::Batch;
use super::whole;
use crate::lab::{Inputs, Lab, Measured, Stage};
use crate::report::{Setting, Unit};

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
    /// Batches that are measured in turn.
    pub(crate) batches: Vec<Batch>,
    pub(crate) backward: bool,
}

pub(crate) struct Taken {
    pub(crate) facts: Facts,
    pub(crate) measured: Measured,
    /// The stages, added up by kernel.
    kernels: Vec<Stage>,
    shards: u32,
    windows: u32,
}

impl Workload {
    /// Measures the workload on a group of its configuration.
    pub(crate) fn run(&self, lab: &Lab, group: &mut Group) -> anyhow::Result<Taken> {
        let upload = |batches: &[Batch]| {
            let parts: Vec<_> = batches.iter().map(|batch| (batch.indices(), batch.offsets())).collect();
            Inputs::new(lab, &parts, self.config.dim, 1e-3)
        };
        lab.timeline.listen(false);
        if !self.pins.is_empty() {
            group.pin(&self.pins, WAYS)?;
        }
        for batch in &self.warm {
            let inputs = upload(std::slice::from_ref(batch));
            let mut encoder = lab.encoder();
            group.record_forward(&mut encoder, &inputs.batch(0), inputs.outputs.slice(..))?;
            group.abandon_backward();
            lab.submit(encoder)?;
        }
        let inputs = upload(&self.batches);
        let mut turn = 0;
        let mut record = |group: &mut Group, phase: usize, encoder: &mut wgpu::CommandEncoder| {
            if phase == 1 {
                return group.record_backward(encoder, inputs.grads.slice(..));
            }
            group.abandon_backward();
            turn += 1;
            group.record_forward(encoder, &inputs.batch(turn - 1), inputs.outputs.slice(..))
        };
        let phases = if self.backward { &["forward", "backward"][..] } else { &["forward"] };
        // One whole step first, which allocates and compiles, is not counted.
        let mut encoder = lab.encoder();
        (0..phases.len()).try_for_each(|phase| record(group, phase, &mut encoder))?;
        lab.submit(encoder)?;
        group.check()?;
        let before: Counters = group.counters()?.into_iter().sum();
        let measured = lab.measure(phases, |phase, encoder| Ok(record(group, phase, encoder)?))?;
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
        Ok(Taken { facts, measured, kernels, shards: group.layout().shards, windows: group.layout().windows() })
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

/// 8-bit passes of the sort of misses in forward, and of the sort of `accesses` in backward: by rows or by places, whichever needs fewer.
fn passes(layout: &Layout, accesses: u32) -> [f64; 2] {
    let backward = layout.row_bits().min(layout.place_bits(accesses));
    // A batch of at most 1,024 is sorted in shared memory: one read and one write, as in one pass.
    let passes = |bits: u32| f64::from(if accesses <= 1024 { 1 } else { bits.div_ceil(8) });
    [layout.miss_key_bits(), backward].map(passes)
}

impl Taken {
    /// The median seconds of a phase.
    fn seconds(&self, phase: &str) -> Option<f64> {
        self.measured.phase(phase).map(|times| times.median)
    }

    /// The median seconds of forward and backward together.
    fn step(&self) -> Option<f64> {
        Some(self.seconds("forward")? + self.seconds("backward")?)
    }

    /// Bytes that all kernels of a phase must move.
    fn bytes(&self, phase: &str) -> f64 {
        let kernels = self.kernels.iter().filter(|kernel| kernel.phase == phase);
        kernels.filter_map(|kernel| self.facts.bytes(kernel.stage, phase == "backward")).sum()
    }
}

/// Measures and records a case. A wrong share of hits is an error of the command. If the device has too little memory, a cache of half the
/// size takes the place, and the records say so.
pub(super) fn measure(bench: &mut Bench<'_>, case: &Case) -> anyhow::Result<()> {
    match one(bench, case, 1) {
        Err(error) if case.may_shrink() && too_large(&error) => one(bench, case, 2),
        done => done,
    }
}

/// Whether the device had no room.
fn too_large(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Error::OutOfMemory { .. } | Error::TooLarge { .. }))
}

fn one(bench: &mut Bench<'_>, case: &Case, by: u32) -> anyhow::Result<()> {
    let own = match case.context(bench) {
        Ok(own) => own.map(|context| Lab::new(&context, bench.lab.rounds)),
        // A device without subgroups of 32 lanes lacks a body.
        Err(reason) => {
            bench.run.leave_out(case.name, reason.to_string());
            return Ok(());
        }
    };
    let lab = own.as_ref().unwrap_or(bench.lab);
    lab.timeline.listen(false);
    let mut workload = case.workload(bench, by)?;
    let taken = if case.shards > 0 {
        whole::measure(bench, &mut workload, case.shards)?
    } else {
        workload.run(lab, &mut Group::new(&lab.timed, workload.config.clone())?)?
    };
    if let Some(wanted) = case.hits.filter(|wanted| (taken.facts.hit_rate() - wanted).abs() > 0.003) {
        let found = taken.facts.hit_rate();
        bench.run.wrong.push(format!("{}: wanted {wanted} of the lookups to hit, found {found:.4}", case.name));
    }
    if case.part == "scaling" {
        scaling(bench, &workload, &taken);
    } else {
        record(bench, &workload, &taken);
    }
    // The driver frees the tables when the device is next polled.
    bench.lab.submit(bench.lab.encoder()).map(drop)
}

fn record(bench: &mut Bench<'_>, workload: &Workload, taken: &Taken) {
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
        ("shards", taken.shards.into()),
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
    at.push("step", taken.step(), Unit::Seconds);
    at.timed("step, host clock", taken.measured.wall);
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

/// Records a point of time against work.
fn scaling(bench: &mut Bench<'_>, workload: &Workload, taken: &Taken) {
    let Some(step) = taken.step() else { return };
    bench.run.describe("scaling", format!("distinct rows of one cache; the largest: {}", workload.shape));
    let distinct = taken.facts.distinct;
    let mut at = bench.run.at("scaling", &Setting::default().with("distinct", distinct));
    at.timed("forward", taken.measured.phase("forward"));
    at.timed("backward", taken.measured.phase("backward"));
    at.push("step", step, Unit::Seconds);
    at.push("a row", step / distinct, Unit::Seconds);
    at.push("dispatches", taken.measured.dispatches() as f64, Unit::Count);
}

/// Records how far the points from 10^5 rows on lie off the straight line that is nearest in relative terms, if there are three.
pub(super) fn straight(bench: &mut Bench<'_>) {
    let steps = bench.run.records.iter().filter(|record| record.shape == "scaling" && record.what == "step");
    let points = steps.filter_map(|record| Some((record.setting.number("distinct")?, record.value)));
    let points: Vec<(f64, f64)> = points.filter(|point| point.0 >= 0.99e5).collect();
    let off = off_the_line(&points);
    bench.run.at("scaling", &Setting::default()).push("off a straight line", off, Unit::Share);
}

/// The largest relative distance of a point from the straight line that is nearest in relative terms; `None` below three points.
fn off_the_line(points: &[(f64, f64)]) -> Option<f64> {
    if points.len() < 3 {
        return None;
    }
    // Least squares of 1 - (a + b x) / y over a and b.
    let sum = |of: fn(f64, f64) -> f64| points.iter().map(|&(x, y)| of(x, y)).sum::<f64>();
    let (aa, ab, bb) = (sum(|_, y| 1.0 / (y * y)), sum(|x, y| x / (y * y)), sum(|x, y| x * x / (y * y)));
    let (ya, yb) = (sum(|_, y| 1.0 / y), sum(|x, y| x / y));
    let determinant = aa * bb - ab * ab;
    let (a, b) = ((ya * bb - yb * ab) / determinant, (yb * aa - ya * ab) / determinant);
    Some(points.iter().map(|&(x, y)| (1.0 - (a + b * x) / y).abs()).fold(0.0, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_straight_line_is_straight_and_a_bent_one_is_not() {
        let straight: Vec<(f64, f64)> = [1e5, 3e5, 1e6, 1e7].map(|x| (x, 2e-4 + 3e-9 * x)).into();
        assert!(off_the_line(&straight).unwrap() < 1e-6);
        let bent: Vec<(f64, f64)> = [1e5, 3e5, 1e6, 1e7].map(|x: f64| (x, 1e-9 * x.powf(1.3))).into();
        assert!(off_the_line(&bent).unwrap() > 0.2);
        assert_eq!(off_the_line(&straight[..2]), None);
    }
}
